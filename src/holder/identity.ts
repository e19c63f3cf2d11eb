/** Identifies this process to its lessor: by a name that people can read, and by the incarnation that its first lease gave it. */
import type { Outcome } from '../kernel/outcome.ts'

export class Identity {
  readonly name: string
  incarnation: number | undefined
  /** The first request, while it is under way: its answer decides the incarnation, unless that is known already. */
  pending: Promise<unknown> | undefined

  constructor(name: string) {
    this.name = name
  }

  /** Other requests wait for the answer to the first. */
  introduce(first: Promise<Outcome>): void {
    this.pending = first.then(
      outcome => {
        if (outcome.kind === 'granted' || outcome.kind === 'queued') this.incarnation ??= outcome.incarnation
        this.pending = undefined
      },
      () => (this.pending = undefined),
    )
  }
}
