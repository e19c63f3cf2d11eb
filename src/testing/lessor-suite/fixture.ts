/** The log of a case of the suite, as the tests of a lessor provide it. */
import type { Lessor } from '../../lessor.ts'

/** One fresh, empty log. */
export interface LessorFixture extends AsyncDisposable {
  /** Opens one more lessor on the log, as another process would. The suite closes it. */
  lessor(): Promise<Lessor>
  /** Lets this much time pass for every lessor, and timers that expire meanwhile fire. */
  advance(ms: number): Promise<void>
  /** Only one lessor can be open at a time: the suite uses it for both parts. */
  readonly alone?: boolean
  /** A lapse may be this late, in ms. Default: 200. */
  readonly late?: number
  /** The number of events kept for watches that resume. If given, the suite also tests what happens beyond it. */
  readonly keeps?: number
  /** Restarts what is behind the lessors. Left out: closing them all does that. */
  restart?(): Promise<void>
}
