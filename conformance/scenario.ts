/** The form of a scenario. README.md describes each field; `scenarios/` has them as JSON. Durations are milliseconds. */

export interface ClientOptions {
  /** Its clocks run at this rate: 1 is true time. */
  readonly rate?: number
  readonly addresses?: number
  /** Its name. That of the client in the scenario by default. */
  readonly holder?: string
}

export interface Expectation {
  readonly held?: readonly string[]
  readonly notHeld?: readonly string[]
  readonly granted?: readonly string[]
  readonly pending?: readonly string[]
  /** `tryAcquire` answered that another holder has it. */
  readonly none?: readonly string[]
  readonly error?: Readonly<Record<string, string | readonly string[]>>
  /** The reason of an error, and the sentence that it is told with. */
  readonly reason?: Readonly<Record<string, string>>
  readonly message?: Readonly<Record<string, string>>
  readonly lost?: Readonly<Record<string, string | readonly string[]>>
  readonly notLost?: readonly string[]
  readonly remaining?: Readonly<Record<string, readonly [number, number]>>
  readonly positions?: readonly number[]
  /** The token of the second is greater than that of the first. */
  readonly tokensGrow?: readonly [string, string]
}

export type CallStep = Extract<Step, { readonly call: string }>

export type Step =
  | { readonly advance: number }
  | { readonly expect: Expectation }
  | { readonly server: 'kill' | 'start' | 'copyLog' | 'putBack' | 'replaceLog' | 'revoke'; readonly lease?: string; readonly by?: string }
  | {
      readonly client: string
      readonly call: 'acquire' | 'tryAcquire' | 'release' | 'transfer' | 'adopt' | 'cancel' | 'close'
      readonly as?: string
      readonly args?: Readonly<Record<string, unknown>>
    }
  | {
      readonly client: string
      readonly wire: 'holdRequests' | 'holdAnswers' | 'duplicate' | 'silence' | 'cut' | 'refuse' | 'down' | 'drip' | 'heal'
      /** For `down`. */
      readonly address?: number
    }
  | {
      readonly client: string
      readonly stall: number
      /** The program looks at its leases while the client's own timers and input still wait. */
      readonly look?: boolean
    }
  | { readonly client: string; readonly suspend: number }
  | { readonly client: string; readonly stepWall: number }

export interface Scenario {
  readonly title: string
  /** The accident that it prevents, and where it happened. */
  readonly why: string
  readonly clients: Readonly<Record<string, ClientOptions>>
  /** True: the conductor looks in every moment at which leases each client holds. A look may be what ends a lease. Default: true. */
  readonly looks?: boolean
  readonly steps: readonly Step[]
}
