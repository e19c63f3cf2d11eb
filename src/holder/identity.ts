import type { Outcome } from '../kernel/outcome.ts'

/** Who this process is to its lessor: a name that people can read, and the incarnation that its first lease gave it. */
export class Identity {
  readonly name: string
  incarnation: number | undefined
  #introduction: Promise<unknown> | undefined

  constructor(name: string) {
    this.name = name
  }

  /** Someone else's first question is under way: its answer says who we are. */
  get pending(): Promise<unknown> | undefined {
    return this.incarnation === undefined ? this.#introduction : undefined
  }

  /** Everyone else waits for the first answer. */
  introduce(first: Promise<Outcome>): void {
    this.#introduction = first.then(
      outcome => {
        if (outcome.kind === 'granted' || outcome.kind === 'queued') this.incarnation ??= outcome.incarnation
        this.#introduction = undefined
      },
      () => (this.#introduction = undefined),
    )
  }
}
