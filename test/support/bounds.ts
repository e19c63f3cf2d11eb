/**
 * Tests wait no longer than these bounds. A wait for a real event (a line of a program, an answer, an exit) has one bound, far above what a busy machine needs: it only turns a
 * hang into a failure. No test passes or fails by it otherwise. What depends on how much time passes gets a manual clock.
 */

/** Milliseconds for one real event. The default of `expect.poll`. */
export const EVENT_TIMEOUT = 120_000
/** Milliseconds for one test or hook, unless it says otherwise: it must be able to report the event that did not come. */
export const TEST_TIMEOUT = 900_000
/** The same in the quick loop, whose tests start no process. A test that asks for more is left out of it. */
export const QUICK_TIMEOUT = 60_000
