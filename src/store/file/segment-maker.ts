/** Makes files of zeros for the next segments, one of them ahead of time, so that no append waits for it. */
import { LeaseError } from '../../errors.ts'
import { fileError } from './errors.ts'
import type { LogFolder, NewLogFile } from './log-folder.ts'

/** The length of the first segment, and of any on a disk that is nearly full. One with a larger record is longer. */
const MIN_SIZE = 256 * 1_024
/** Each segment is twice as long as the one before it, up to this length. */
const MAX_SIZE = 4 * 1_024 * 1_024
/** Written at a time. */
const FILL_SIZE = 262_144

/** The name of a file that is being made ends with it. */
export const TEMPORARY = '.part'

export interface SegmentMakerOptions {
  readonly folder: LogFolder
  /** The path of the log, for messages. */
  readonly path: string
  /** Distinguishes the temporary files of this process. */
  readonly writer: () => string
  /** For tests. */
  readonly minSize?: number
  readonly maxSize?: number
}

interface Made {
  readonly file: NewLogFile
  readonly size: number
}

export class SegmentMaker {
  readonly #options: Required<SegmentMakerOptions>
  #spare: { readonly size: number; readonly file: Promise<NewLogFile | undefined> } | undefined
  #count = 0

  constructor(options: SegmentMakerOptions) {
    this.#options = { minSize: MIN_SIZE, maxSize: MAX_SIZE, ...options }
  }

  /** Makes a file of at least `needed` bytes, to follow a segment of the length `before`. On a disk that is nearly full, it is shorter than usual. */
  async make(needed: number, before: number): Promise<Made> {
    const least = Math.max(this.#options.minSize, needed)
    const spare = await this.#takeSpare(least)
    if (spare !== undefined) return spare
    const size = Math.max(this.#sizeAfter(before), least)
    try {
      return { file: await this.#fill(size), size }
    } catch (error) {
      if (size === least || !(error instanceof LeaseError) || error.reason !== 'full') throw error
      return { file: await this.#fill(least), size: least }
    }
  }

  /** Begins to make the file that follows a segment of the length `before`. */
  prepare(before: number): void {
    if (this.#spare !== undefined) return
    const size = this.#sizeAfter(before)
    this.#spare = { size, file: this.#fill(size).catch(() => undefined) } // the append that needs it reports why
  }

  async close(): Promise<void> {
    await (await this.#spare?.file)?.drop()
  }

  #sizeAfter(before: number): number {
    const { minSize, maxSize } = this.#options
    return Math.min(maxSize, Math.max(minSize, before * 2))
  }

  async #takeSpare(least: number): Promise<Made | undefined> {
    const spare = this.#spare
    this.#spare = undefined
    const file = await spare?.file
    if (file === undefined || spare === undefined) return undefined
    if (spare.size >= least) return { file, size: spare.size }
    await file.drop()
    return undefined
  }

  async #fill(size: number): Promise<NewLogFile> {
    const { folder, path, writer } = this.#options
    try {
      const file = await folder.create(`segment-${writer()}-${++this.#count}${TEMPORARY}`)
      try {
        const zeros = Buffer.alloc(Math.min(size, FILL_SIZE))
        for (let at = 0; at < size; at += zeros.length) await file.write(zeros.subarray(0, Math.min(zeros.length, size - at)), at)
        return file
      } catch (error) {
        await file.drop()
        throw error
      }
    } catch (error) {
      throw fileError(error, path)
    }
  }
}
