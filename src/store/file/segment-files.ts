/** The files of the segments: found by the index of their first record, opened once, and closed when they were removed. */
import { damaged, fileError } from './errors.ts'
import type { LogFile, LogFolder } from './log-folder.ts'

const SUFFIX = '.log'

export class SegmentFiles {
  readonly #folder: LogFolder
  readonly #path: string
  /** Only this class changes it. */
  readonly opened = new Map<number, LogFile>()

  constructor(folder: LogFolder, path: string) {
    this.#folder = folder
    this.#path = path
  }

  /** Returns the first index of each segment, in order. */
  async firsts(): Promise<number[]> {
    const firsts = (await this.#folder.list()).filter(isSegment).map(name => {
      const first = Number(name.slice(0, -SUFFIX.length))
      if (segmentName(first) !== name) throw damaged(this.#path, `${name} is not the name of a segment`)
      return first
    })
    return firsts.sort((a, b) => a - b)
  }

  async has(segment: number): Promise<boolean> {
    return (await this.#fileIfThere(segment)) !== undefined
  }

  async sizeOf(segment: number): Promise<number> {
    return (await this.open(segment)).size()
  }

  /** Returns fewer bytes than asked for only at the end of the segment. */
  async read(segment: number, offset: number, length: number): Promise<Buffer> {
    const buffer = Buffer.allocUnsafe(length)
    let file = await this.open(segment)
    while (this.opened.get(segment) !== file) file = await this.open(segment) // it was closed meanwhile
    const read = await file.read(buffer, offset).catch(error => {
      throw fileError(error, this.#path)
    })
    return buffer.subarray(0, read)
  }

  async remove(segment: number): Promise<void> {
    await this.#folder.remove(segmentName(segment))
    await this.close(segment)
  }

  /** The space of a removed file is free once no process has it open. */
  async closeBefore(segment: number): Promise<void> {
    for (const each of [...this.opened.keys()]) if (each < segment) await this.close(each)
  }

  async closeAll(): Promise<void> {
    await this.closeBefore(Number.POSITIVE_INFINITY)
  }

  async close(segment: number): Promise<void> {
    const file = this.opened.get(segment)
    this.opened.delete(segment)
    await file?.close().catch(() => {})
  }

  /** Of an existing segment. */
  async open(segment: number): Promise<LogFile> {
    const file = await this.#fileIfThere(segment)
    if (file === undefined) throw damaged(this.#path, `the segment of ${segment} is missing`)
    return file
  }

  async #fileIfThere(segment: number): Promise<LogFile | undefined> {
    const known = this.opened.get(segment)
    if (known !== undefined) return known
    const file = await this.#folder.open(segmentName(segment)).catch(error => {
      throw fileError(error, this.#path)
    })
    if (file === undefined) return undefined
    const first = this.opened.get(segment)
    if (first !== undefined) {
      await file.close() // two calls opened it at once
      return first
    }
    this.opened.set(segment, file)
    return file
  }
}

export function isSegment(name: string): boolean {
  return name.endsWith(SUFFIX)
}

export function segmentName(first: number): string {
  return `${String(first).padStart(16, '0')}${SUFFIX}`
}
