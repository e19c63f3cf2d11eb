/** Identifies this process to its lessor: by a name that people can read, and by the incarnation that its first lease gave it. */
import type { Outcome } from '../kernel/outcome.ts'

export class Identity {
  readonly name: string
  incarnation: number | undefined
  #introduction: Promise<unknown> | undefined

  constructor(name: string) {
    this.name = name
  }

  /** The first request, while it is under way: its answer decides the incarnation. */
  get pending(): Promise<unknown> | undefined {
    return this.incarnation === undefined ? this.#introduction : undefined
  }

  /** Other requests wait for the answer to the first. */
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
