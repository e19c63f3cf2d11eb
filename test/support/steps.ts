/** Counts steps of the kernel: how often each block of its code is entered, as the engine counts for coverage. The same program takes the same number every time. */
import { Session } from 'node:inspector/promises'

export class StepCounter implements AsyncDisposable {
  readonly #session: Session
  readonly #folder: string

  private constructor(session: Session, folder: string) {
    this.#session = session
    this.#folder = folder
  }

  /** Counts code in files whose path contains `folder`. */
  static async open(folder: string): Promise<StepCounter> {
    const session = new Session()
    session.connect()
    await session.post('Profiler.enable')
    await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true })
    return new StepCounter(session, folder)
  }

  async during(work: () => void): Promise<number> {
    await this.#session.post('Profiler.takePreciseCoverage')
    work()
    const { result } = await this.#session.post('Profiler.takePreciseCoverage')
    let steps = 0
    for (const { url, functions } of result)
      if (url.includes(this.#folder)) for (const { ranges } of functions) for (const { count } of ranges) steps += count
    return steps
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#session.post('Profiler.stopPreciseCoverage')
    this.#session.disconnect()
  }
}
