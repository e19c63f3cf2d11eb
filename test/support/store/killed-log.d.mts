export interface WriterPlan {
  readonly own?: boolean
  /** The call at which the process dies. Without one it ends by itself. */
  readonly step?: string
  readonly when?: string
  /** At which of these calls. */
  readonly count?: number
}

export declare const STEPS: readonly string[]
export declare const MOMENTS: readonly string[]

export declare class KilledLog implements Disposable {
  /** How many records are known. */
  readonly records: number
  readonly skipped: number
  run(...plans: WriterPlan[]): Promise<number>
  check(): Promise<void>
  [Symbol.dispose](): void
}
