/** Counts steps of the kernel: how often each block of its code is entered, as the engine counts for coverage. The same program takes the same number every time. */
import { Session } from 'node:inspector/promises'
import { setFlagsFromString } from 'node:v8'

const UNCOUNTED = ['opt', 'flush-bytecode'] as const

export class StepCounter implements AsyncDisposable {
  readonly #session: Session
  readonly #files: RegExp

  private constructor(session: Session, files: RegExp) {
    this.#session = session
    this.#files = files
  }

  /** Counts the code of a folder of the source, whether its source or its build is loaded. */
  static async open(folder: string): Promise<StepCounter> {
    // Calls of functions that were optimized, or whose code was dropped since they ran last, are not counted. When that happens depends on other threads.
    for (const flag of UNCOUNTED) setFlagsFromString(`--no-${flag}`)
    const session = new Session()
    session.connect()
    await session.post('Profiler.enable')
    await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true })
    return new StepCounter(session, new RegExp(`/(src|dist)/${folder}/`))
  }

  async during(work: () => void): Promise<number> {
    await this.#session.post('Profiler.takePreciseCoverage')
    work()
    const { result } = await this.#session.post('Profiler.takePreciseCoverage')
    let steps = 0
    for (const { url, functions } of result)
      if (this.#files.test(url)) for (const { ranges } of functions) for (const { count } of ranges) steps += count
    return steps
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#session.post('Profiler.stopPreciseCoverage')
    this.#session.disconnect()
    for (const flag of UNCOUNTED) setFlagsFromString(`--${flag}`)
  }
}
