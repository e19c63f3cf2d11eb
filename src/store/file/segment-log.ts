/**
 * The records of a log in segments: files of zeros that are filled with one frame after another. A segment is named by the index of its first record, and never
 * changes once the next one exists.
 *
 * - A process that appends has the lock of one append (database.ts). It writes one frame at a time, and the frame is durable when the write returns. Only then
 *   is its position published in PATH-head.
 * - Readers need no lock. They read up to the position in PATH-head, and whatever they miss before that is damage.
 * - After a crash there may be frames behind that position: whole ones, and at most one torn one at the end. The next process that has the lock writes the whole
 *   ones again, because a sync that failed says nothing about what it left on the disk, and clears the torn one. A whole frame behind a torn one cannot come
 *   from a crash: it is damage.
 */
import type { Clock } from '../../clock.ts'
import type { LogRecord, Position } from '../../store.ts'
import { damaged, fileError } from './errors.ts'
import {
  ALIGNMENT,
  age,
  decodeFrame,
  decodeSegmentHeader,
  encodeFrame,
  encodeSegmentHeader,
  type Frame,
  hasFrameBehind,
  SEGMENT_HEADER,
  stamp,
} from './frame.ts'
import type { LogFile, LogFolder, NewLogFile } from './log-folder.ts'

/** The length of a segment. One with a larger record is longer. */
export const SEGMENT_SIZE = 4 * 1_024 * 1_024
/** Read at a time. */
const READ_SIZE = 65_536
/** Written at a time when a segment is filled with zeros. */
const FILL_SIZE = 262_144
/** One answer carries at most this much. A larger record travels alone. */
const MAX_RECORDS = 1_000
const MAX_BYTES = 1_048_576
/** How many places are remembered, so that readers need not begin at the start of a segment. */
const MAX_PLACES = 16

const SUFFIX = '.log'
export const TEMPORARY = '.part'

/** A place between two frames: `position` is that of the record before it. */
interface Place {
  readonly position: Position
  /** The first index of the segment. */
  readonly segment: number
  readonly offset: number
}

/** Frames from a place on, and why there are no more. */
interface Found {
  readonly frames: readonly Frame[]
  readonly place: Place
  readonly reason: 'end' | 'torn' | 'limit'
}

export interface SegmentLogOptions {
  readonly folder: LogFolder
  readonly clock: Clock
  /** The path of the log, for messages. */
  readonly path: string
  /** Distinguishes the temporary files of this process. */
  readonly writer: () => string
  readonly size?: number
}

export class SegmentLog {
  readonly #folder: LogFolder
  readonly #clock: Clock
  readonly #path: string
  readonly #writer: () => string
  readonly #size: number
  /** The id of the log, which all segments have. */
  #log = 0n
  /** The first place of each segment, in order. */
  #segments: Place[] = []
  readonly #open = new Map<number, LogFile>()
  readonly #places: Place[] = []
  #end!: Place
  /** The length of the last segment. */
  #length = 0
  #isBroken = false
  #spare: Promise<NewLogFile | undefined> | undefined
  #spares = 0

  constructor({ folder, clock, path, writer, size = SEGMENT_SIZE }: SegmentLogOptions) {
    this.#folder = folder
    this.#clock = clock
    this.#path = path
    this.#writer = writer
    this.#size = size
  }

  /** The last record. */
  get head(): Position {
    return this.#end.position
  }

  /** The last record that was trimmed. */
  get floor(): Position {
    return this.#segments[0]!.position
  }

  /**
   * Finds the end of the log, and repairs it. With the lock. `published`: the index in PATH-head. An empty folder gets its first segment, unless records were
   * acknowledged.
   */
  async load(log: bigint, published: number): Promise<void> {
    this.#log = log
    await this.#list()
    if (this.#segments.length === 0) {
      if (published > 0) throw damaged(this.#path, `its segments are missing, although ${published} records were acknowledged`)
      await this.#addSegment({ position: { index: 0, nonce: 0n }, segment: 1, offset: SEGMENT_HEADER }, 0)
    }
    this.#end = this.#segments.at(-1)!
    await this.#enterSegment(this.#end)
    await this.catchUp(published)
  }

  /** Finds what other processes have appended since, and repairs the end. With the lock. */
  async catchUp(published: number): Promise<void> {
    if (this.#isBroken) await this.#reopen()
    for (;;) {
      const { frames, place, reason } = await this.#find(this.#end, Number.POSITIVE_INFINITY)
      await this.#writeAgain(frames, published)
      if (place.segment !== this.#end.segment) await this.#enterSegment(place)
      this.#end = place
      if (reason === 'limit') continue
      if (reason === 'torn') await this.#clearTorn(published)
      if (this.#end.position.index < published)
        throw damaged(this.#path, `it ends at ${this.#end.position.index}, although ${published} was acknowledged`)
      return
    }
  }

  /** Whether a write failed: what is behind the end is not known until `catchUp`. */
  get isBroken(): boolean {
    return this.#isBroken
  }

  /** Appends one record. With the lock. It is durable when this returns. */
  async append(bytes: Uint8Array, nonce: bigint): Promise<Position> {
    const { index, nonce: before } = this.#end.position
    const position = { index: index + 1, nonce }
    const frame = encodeFrame(position, before, stamp(this.#clock), bytes)
    // Zeros must follow a frame, so that its end is known.
    if (this.#end.offset + frame.length + ALIGNMENT > this.#length) await this.#roll(frame.length)
    const { segment, offset } = this.#end
    const file = await this.#file(segment)
    try {
      await file.write(frame, offset)
    } catch (error) {
      this.#isBroken = true
      throw fileError(error, this.#path, 'perhaps')
    }
    this.#end = { position, segment, offset: offset + frame.length }
    if (this.#length - this.#end.offset < this.#size / 2) this.#prepareSpare()
    return position
  }

  /** The records after a position of this log, up to the index `last`, as many as one answer carries. Undefined: they are trimmed. */
  async read(after: Position, last: number): Promise<LogRecord[] | undefined> {
    const place = await this.#placeOf(after.index)
    if (place === undefined) return undefined
    const now = stamp(this.#clock)
    const { frames, place: end, reason } = await this.#find(place, last)
    this.#remember(end)
    if (reason !== 'limit' && end.position.index < last)
      throw damaged(this.#path, `record ${end.position.index + 1} is missing or does not match its checksum`)
    return frames.map(({ position, bytes, stamp: appended }) => ({ position, bytes, age: age(appended, now) }))
  }

  /** The nonce of a record of this log. Undefined: it is trimmed. */
  async nonceAt(index: number): Promise<bigint | undefined> {
    return (await this.#placeOf(index))?.position.nonce
  }

  /** Removes segments of which all records are at most at `index`. A failure leaves them for the next time. */
  async trim(index: number): Promise<void> {
    while (this.#segments.length > 1 && this.#segments[1]!.position.index <= index) {
      const { segment } = this.#segments[0]!
      await this.#folder.remove(nameOf(segment))
      this.#segments.shift()
      await this.#closeFile(segment)
    }
  }

  async close(): Promise<void> {
    await (await this.#spare)?.drop()
    for (const segment of [...this.#open.keys()]) await this.#closeFile(segment)
  }

  // Segments

  async #list(): Promise<void> {
    const firsts = (await this.#folder.list())
      .filter(isSegment)
      .map(name => {
        const first = Number(name.slice(0, -SUFFIX.length))
        if (nameOf(first) !== name) throw damaged(this.#path, `${name} is not the name of a segment`)
        return first
      })
      .sort((a, b) => a - b)
    const known = new Map(this.#segments.map(place => [place.segment, place]))
    const segments: Place[] = []
    for (const first of firsts) {
      const place = known.get(first) ?? (await this.#startOf(first))
      if (place !== undefined) segments.push(place)
    }
    this.#segments = segments
  }

  /** The place before the first frame of a segment. Undefined: it was trimmed meanwhile. */
  async #startOf(first: number): Promise<Place | undefined> {
    const file = await this.#fileIfThere(first)
    if (file === undefined) return undefined
    const bytes = Buffer.alloc(SEGMENT_HEADER)
    const header = (await file.read(bytes, 0)) === SEGMENT_HEADER ? decodeSegmentHeader(bytes) : undefined
    if (header === undefined || header.first !== first) throw damaged(this.#path, `the segment of ${first} has no valid header`)
    if (header.log !== this.#log) throw damaged(this.#path, `the segment of ${first} belongs to another log`)
    return { position: { index: first - 1, nonce: header.before }, segment: first, offset: SEGMENT_HEADER }
  }

  /** Begins the next segment. */
  async #roll(needed: number): Promise<void> {
    await this.#addSegment({ position: this.#end.position, segment: this.#end.position.index + 1, offset: SEGMENT_HEADER }, needed)
  }

  /** Goes on in a segment that another process has made. It may have died before the name was durable. */
  async #enterSegment({ segment }: Place): Promise<void> {
    this.#length = await this.#sizeOf(segment)
    await this.#folder.sync().catch(error => {
      throw fileError(error, this.#path)
    })
  }

  async #addSegment(start: Place, needed: number): Promise<void> {
    const size = Math.max(this.#size, SEGMENT_HEADER + needed + ALIGNMENT)
    const spare = size === this.#size ? await this.#takeSpare() : undefined
    const file = spare ?? (await this.#filled(size))
    try {
      await file.write(encodeSegmentHeader({ log: this.#log, first: start.segment, before: start.position.nonce }), 0)
      await file.keep(nameOf(start.segment))
    } catch (error) {
      await file.drop()
      this.#isBroken = true // it may have its name all the same
      throw fileError(error, this.#path)
    }
    await this.#closeFile(start.segment) // a larger one may take the place of one without a record
    this.#segments = [...this.#segments.filter(({ segment }) => segment !== start.segment), start]
    this.#end = start
    this.#length = size
  }

  async #filled(size: number): Promise<NewLogFile> {
    try {
      const file = await this.#folder.create(`segment-${this.#writer()}-${++this.#spares}${TEMPORARY}`)
      try {
        const zeros = Buffer.alloc(Math.min(size, FILL_SIZE))
        for (let at = 0; at < size; at += zeros.length) await file.write(zeros.subarray(0, Math.min(zeros.length, size - at)), at)
        return file
      } catch (error) {
        await file.drop()
        throw error
      }
    } catch (error) {
      throw fileError(error, this.#path)
    }
  }

  /** Fills the next segment ahead, so that no append waits for it. */
  #prepareSpare(): void {
    this.#spare ??= this.#filled(this.#size).catch(() => undefined) // the append that needs it reports why
  }

  #takeSpare(): Promise<NewLogFile | undefined> {
    const spare = this.#spare
    this.#spare = undefined
    return spare ?? Promise.resolve(undefined)
  }

  // Frames

  /** Frames from a place on, also in the next segments, up to the index `last`. */
  async #find(from: Place, last: number): Promise<Found> {
    const frames: Frame[] = []
    let place = from
    let size = 0
    for (let needed = READ_SIZE; ; ) {
      const [bytes, isAll] = await this.#bytesAt(place, needed)
      const start = place.offset
      let found = decodeFrame(bytes, 0)
      for (; typeof found === 'object'; found = decodeFrame(bytes, place.offset - start)) {
        if (place.position.index >= last) return { frames, place, reason: 'limit' }
        if (found.position.index !== place.position.index + 1 || found.before !== place.position.nonce)
          throw damaged(this.#path, `another record follows ${place.position.index}`)
        size += found.bytes.length
        if (frames.length > 0 && (frames.length === MAX_RECORDS || size > MAX_BYTES)) return { frames, place, reason: 'limit' }
        frames.push(found)
        place = { position: found.position, segment: place.segment, offset: place.offset + found.length }
      }
      if (place.position.index >= last) return { frames, place, reason: 'limit' }
      needed = Math.max(READ_SIZE, typeof found === 'number' ? found : 0)
      if (typeof found === 'number' && !isAll) continue
      // Less than a frame is left of the segment, or a frame that is longer than the segment.
      const reason = found === 'none' || (typeof found === 'number' && place.offset - start + ALIGNMENT > bytes.length) ? 'end' : 'torn'
      const next = await this.#nextSegment(place)
      if (next === undefined) return { frames, place, reason }
      if (reason === 'torn') throw damaged(this.#path, `record ${place.position.index + 1} does not match its checksum`)
      if (next.position.index !== place.position.index) throw damaged(this.#path, `record ${place.position.index + 1} is missing`)
      if (next.position.nonce !== place.position.nonce) throw damaged(this.#path, `record ${place.position.index} is another one`)
      place = next
    }
  }

  /** At least `needed` bytes of a segment, or all that it has from there. */
  async #bytesAt({ segment, offset }: Place, needed: number): Promise<[bytes: Buffer, isAll: boolean]> {
    const buffer = Buffer.allocUnsafe(needed)
    const read = await (await this.#file(segment)).read(buffer, offset).catch(error => {
      throw fileError(error, this.#path)
    })
    return [buffer.subarray(0, read), read < needed]
  }

  /** The start of the segment after that of a place, if there is one. */
  async #nextSegment({ segment, position }: Place): Promise<Place | undefined> {
    const following = () => this.#segments.find(start => start.segment > segment)
    if (following() === undefined && (await this.#fileIfThere(position.index + 1)) !== undefined) await this.#list()
    return following()
  }

  /** The place behind the record at `index`. Undefined: it is trimmed. */
  async #placeOf(index: number): Promise<Place | undefined> {
    if (index === this.#end.position.index) return this.#end
    const known = [...this.#segments, ...this.#places].filter(({ position }) => position.index <= index)
    const nearest = known.reduce<Place | undefined>(
      (best, each) => (best === undefined || each.position.index >= best.position.index ? each : best),
      undefined,
    )
    if (nearest === undefined) return undefined
    let place = nearest
    while (place.position.index < index) {
      const found = await this.#find(place, index)
      if (found.reason !== 'limit') throw damaged(this.#path, `record ${found.place.position.index + 1} is missing`)
      place = found.place
    }
    return place
  }

  #remember(place: Place): void {
    this.#places.push(place)
    if (this.#places.length > MAX_PLACES) this.#places.shift()
  }

  // Repair

  /** Frames behind the published position may be in the memory of the system only. */
  async #writeAgain(frames: readonly Frame[], published: number): Promise<void> {
    let place = this.#end
    for (const frame of frames) {
      const start = this.#segments.find(({ position }) => position.index === frame.position.index - 1)
      if (start !== undefined && start.segment !== place.segment) place = start
      if (frame.position.index > published) {
        const whole = encodeFrame(frame.position, frame.before, frame.stamp, frame.bytes)
        await this.#rewrite(place, whole)
      }
      place = { ...place, position: frame.position, offset: place.offset + frame.length }
    }
  }

  async #rewrite({ segment, offset }: Place, bytes: Buffer): Promise<void> {
    try {
      await (await this.#file(segment)).write(bytes, offset)
    } catch (error) {
      this.#isBroken = true
      throw fileError(error, this.#path)
    }
  }

  /** Clears what a torn write left at the end. */
  async #clearTorn(published: number): Promise<void> {
    const { segment, offset, position } = this.#end
    const rest = Buffer.alloc(Math.max(0, this.#length - offset))
    const read = rest.subarray(0, await (await this.#file(segment)).read(rest, offset))
    if (position.index < published || hasFrameBehind(read, 0))
      throw damaged(this.#path, `record ${position.index + 1} does not match its checksum`)
    let length = read.length
    while (length > 0 && read[length - 1] === 0) length--
    await this.#rewrite(this.#end, Buffer.alloc(length))
  }

  /** Nothing is known of the last segment after a failed write: it is opened and read again. */
  async #reopen(): Promise<void> {
    for (const segment of [...this.#open.keys()]) await this.#closeFile(segment)
    await this.#list()
    await this.#enterSegment(this.#end)
    this.#isBroken = false
  }

  // Files

  async #sizeOf(segment: number): Promise<number> {
    return (await this.#file(segment)).size()
  }

  async #file(segment: number): Promise<LogFile> {
    const file = await this.#fileIfThere(segment)
    if (file === undefined) throw damaged(this.#path, `the segment of ${segment} is missing`)
    return file
  }

  async #fileIfThere(segment: number): Promise<LogFile | undefined> {
    const known = this.#open.get(segment)
    if (known !== undefined) return known
    const file = await this.#folder.open(nameOf(segment)).catch(error => {
      throw fileError(error, this.#path)
    })
    if (file === undefined) return undefined
    const first = this.#open.get(segment)
    if (first !== undefined) {
      await file.close() // two calls opened it at once
      return first
    }
    this.#open.set(segment, file)
    return file
  }

  async #closeFile(segment: number): Promise<void> {
    const file = this.#open.get(segment)
    this.#open.delete(segment)
    await file?.close().catch(() => {})
  }
}

export function isSegment(name: string): boolean {
  return name.endsWith(SUFFIX)
}

function nameOf(first: number): string {
  return `${String(first).padStart(16, '0')}${SUFFIX}`
}
