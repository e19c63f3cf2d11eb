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
import type { LogFolder } from './log-folder.ts'
import { SegmentFiles, segmentName } from './segment-files.ts'
import { SegmentMaker, type SegmentMakerOptions } from './segment-maker.ts'

/** Read at a time. */
const READ_SIZE = 65_536
/** One answer carries at most this much. A larger record travels alone. */
const MAX_RECORDS = 1_000
const MAX_BYTES = 1_048_576
/** The number of places that are remembered, so that readers need not begin at the start of a segment. */
const MAX_PLACES = 16

/** A place between two frames: `position` is that of the record before it. */
interface LogPlace {
  readonly position: Position
  /** The first index of the segment. */
  readonly segment: number
  readonly offset: number
}

/** Frames from a place on, and why there are no more. */
interface Found {
  readonly frames: readonly Frame[]
  readonly place: LogPlace
  readonly reason: 'end' | 'torn' | 'limit'
}

export interface SegmentLogOptions extends SegmentMakerOptions {
  readonly clock: Clock
}

export class SegmentLog {
  readonly #folder: LogFolder
  readonly #clock: Clock
  readonly #path: string
  readonly #files: SegmentFiles
  readonly #maker: SegmentMaker
  /** Of this process, whose frames name it. */
  #boot = ''
  /** The id of the log, which all segments have. */
  #log = 0n
  /** The first place of each segment, in order. */
  #segments: LogPlace[] = []
  readonly #places: LogPlace[] = []
  /** The place behind the last record. Only this class changes it. */
  end!: LogPlace
  /** The length of the last segment. */
  #length = 0
  /** A write failed: what is behind the end is not known until `catchUp`. Only this class changes it. */
  isBroken = false

  constructor({ clock, ...options }: SegmentLogOptions) {
    this.#clock = clock
    this.#folder = options.folder
    this.#path = options.path
    this.#files = new SegmentFiles(options.folder, options.path)
    this.#maker = new SegmentMaker(options)
  }

  /** The last record that was trimmed. */
  get floor(): Position {
    return this.#segments[0]!.position
  }

  /**
   * Finds the end of the log, and repairs it. With the lock. `published`: the index in PATH-head. An empty folder gets its first segment, unless records were
   * acknowledged, or it had segments before.
   */
  async load(log: bigint, published: number, hadSegments: boolean): Promise<void> {
    this.#log = log
    this.#boot = this.#clock.boot()
    this.#segments = []
    this.#places.length = 0
    await this.#files.closeAll()
    await this.#list()
    if (this.#segments.length === 0) {
      if (published > 0) throw damaged(this.#path, `its segments are missing, although ${published} records were acknowledged`)
      if (hadSegments) throw damaged(this.#path, 'its segments are missing')
      await this.#addSegment({ position: { index: 0, nonce: 0n }, segment: 1, offset: SEGMENT_HEADER }, 0)
    }
    this.end = this.#segments.at(-1)!
    await this.#enterSegment(this.end)
    await this.catchUp(published)
  }

  /** Finds what other processes have appended since, and repairs the end. With the lock. */
  async catchUp(published: number): Promise<void> {
    if (this.isBroken) await this.#reopen()
    for (;;) {
      const { frames, place, reason } = await this.#find(this.end, Number.POSITIVE_INFINITY)
      await this.#writeAgain(frames, published)
      if (this.end.offset === SEGMENT_HEADER || place.segment !== this.end.segment) await this.#enterSegment(place)
      this.end = place
      if (reason === 'limit') continue
      if (reason === 'torn') await this.#clearTorn(published)
      if (this.end.position.index < published)
        throw damaged(this.#path, `it ends at ${this.end.position.index}, although ${published} was acknowledged`)
      return
    }
  }

  /** Appends one record. With the lock. It is durable when this returns. */
  async append(bytes: Uint8Array, nonce: bigint): Promise<Position> {
    const { index, nonce: before } = this.end.position
    const position = { index: index + 1, nonce }
    const frame = encodeFrame(position, before, { boot: this.#boot, at: this.#clock.now() }, bytes)
    // Zeros must follow a frame, so that its end is known.
    if (this.end.offset + frame.length + ALIGNMENT > this.#length) await this.#roll(frame.length)
    const { segment, offset } = this.end
    try {
      const file = this.#files.opened.get(segment) ?? (await this.#files.open(segment))
      await file.write(frame, offset)
    } catch (error) {
      this.isBroken = true
      throw fileError(error, this.#path, 'perhaps')
    }
    this.end = { position, segment, offset: offset + frame.length }
    if (this.end.offset > this.#length / 2) this.#maker.prepare(this.#length)
    return position
  }

  /** The records after a position of this log, up to the index `last`, as many as one answer carries. Undefined: they are trimmed. */
  read(after: Position, last: number): Promise<LogRecord[] | undefined> {
    return this.#unlessTrimmed(after.index, () => this.#read(after, last))
  }

  async #read(after: Position, last: number): Promise<LogRecord[] | undefined> {
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
  nonceAt(index: number): Promise<bigint | undefined> {
    return this.#unlessTrimmed(index, async () => (await this.#placeOf(index))?.position.nonce)
  }

  /** Another process may remove a segment while it is read here. */
  async #unlessTrimmed<T>(index: number, look: () => Promise<T | undefined>): Promise<T | undefined> {
    try {
      return await look()
    } catch (error) {
      await this.#list()
      if (this.#segments.length > 0 && index < this.floor.index) return undefined
      throw error
    }
  }

  /** Removes segments of which all records are at most at `index`. A failure leaves them for the next time. */
  async trim(index: number): Promise<void> {
    while (this.#segments.length > 1 && this.#segments[1]!.position.index <= index) {
      const { segment } = this.#segments[0]!
      await this.#files.remove(segment)
      this.#segments = this.#segments.filter(start => start.segment !== segment)
    }
  }

  async close(): Promise<void> {
    await this.#maker.close()
    await this.#files.closeAll()
  }

  // Segments

  async #list(): Promise<void> {
    const known = new Map(this.#segments.map(place => [place.segment, place]))
    const segments: LogPlace[] = []
    for (const first of await this.#files.firsts()) {
      const place = known.get(first) ?? (await this.#startOf(first))
      if (place !== undefined) segments.push(place)
    }
    // An append may have begun the next segment meanwhile.
    const last = segments.at(-1)?.segment ?? 0
    this.#segments = [...segments, ...this.#segments.filter(({ segment }) => segment > last)]
    const [oldest] = this.#segments
    if (oldest !== undefined) await this.#files.closeBefore(oldest.segment)
  }

  /** The place before the first frame of a segment. Undefined: it was trimmed meanwhile. */
  async #startOf(first: number): Promise<LogPlace | undefined> {
    if (!(await this.#files.has(first))) return undefined
    const header = decodeSegmentHeader(await this.#files.read(first, 0, SEGMENT_HEADER))
    if (header === undefined || header.first !== first) throw damaged(this.#path, `the segment of ${first} has no valid header`)
    if (header.log !== this.#log) throw damaged(this.#path, `the segment of ${first} belongs to another log`)
    return { position: { index: first - 1, nonce: header.before }, segment: first, offset: SEGMENT_HEADER }
  }

  /** Begins the next segment. */
  async #roll(needed: number): Promise<void> {
    await this.#addSegment({ position: this.end.position, segment: this.end.position.index + 1, offset: SEGMENT_HEADER }, needed)
  }

  /** Goes on in a segment that another process has made. It may have died before the name was durable. */
  async #enterSegment({ segment }: LogPlace): Promise<void> {
    this.#length = await this.#files.sizeOf(segment)
    await this.#folder.sync().catch(error => {
      throw fileError(error, this.#path)
    })
  }

  async #addSegment(start: LogPlace, needed: number): Promise<void> {
    const { file, size } = await this.#maker.make(SEGMENT_HEADER + needed + ALIGNMENT, this.#length)
    try {
      await file.write(encodeSegmentHeader({ log: this.#log, first: start.segment, before: start.position.nonce }), 0)
      await file.keep(segmentName(start.segment))
    } catch (error) {
      await file.drop()
      this.isBroken = true // it may have its name all the same
      throw fileError(error, this.#path)
    }
    await this.#files.close(start.segment) // a larger one may take the place of one without a record
    this.#segments = [...this.#segments.filter(({ segment }) => segment !== start.segment), start]
    this.end = start
    this.#length = size
  }

  // Frames

  /** Frames from a place on, also in the next segments, up to the index `last`. */
  async #find(from: LogPlace, last: number): Promise<Found> {
    const frames: Frame[] = []
    let place = from
    let size = 0
    let reopened = 0
    for (let needed = READ_SIZE; ; ) {
      const bytes = await this.#files.read(place.segment, place.offset, needed)
      const isAll = bytes.length < needed
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
      if (place.offset === SEGMENT_HEADER && reopened !== place.segment) {
        // For a large record another process puts a longer file in the place of one without a record.
        reopened = place.segment
        await this.#files.close(reopened)
        continue
      }
      const next = await this.#nextSegment(place)
      if (next === undefined) return { frames, place, reason }
      if (reason === 'torn') throw damaged(this.#path, `record ${place.position.index + 1} does not match its checksum`)
      if (next.position.index !== place.position.index) throw damaged(this.#path, `record ${place.position.index + 1} is missing`)
      if (next.position.nonce !== place.position.nonce) throw damaged(this.#path, `record ${place.position.index} is another one`)
      place = next
    }
  }

  /** The start of the segment after that of a place, if there is one. */
  async #nextSegment({ segment, position }: LogPlace): Promise<LogPlace | undefined> {
    const following = () => this.#segments.find(start => start.segment > segment)
    if (following() === undefined && (await this.#files.has(position.index + 1))) await this.#list()
    return following()
  }

  /** The place behind the record at `index`. Undefined: it is trimmed. */
  async #placeOf(index: number): Promise<LogPlace | undefined> {
    if (index === this.end.position.index) return this.end
    const known = [...this.#segments, ...this.#places].filter(({ position }) => position.index <= index)
    const nearest = known.reduce<LogPlace | undefined>(
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

  #remember(place: LogPlace): void {
    this.#places.push(place)
    if (this.#places.length > MAX_PLACES) this.#places.shift()
  }

  // Repair

  /** Frames behind the published position may be in the memory of the system only. */
  async #writeAgain(frames: readonly Frame[], published: number): Promise<void> {
    let place = this.end
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

  async #rewrite({ segment, offset }: LogPlace, bytes: Buffer): Promise<void> {
    try {
      await (await this.#files.open(segment)).write(bytes, offset)
    } catch (error) {
      this.isBroken = true
      throw fileError(error, this.#path)
    }
  }

  /** Clears what a torn write left at the end. */
  async #clearTorn(published: number): Promise<void> {
    const { segment, offset, position } = this.end
    const read = await this.#files.read(segment, offset, Math.max(0, this.#length - offset))
    if (position.index < published || hasFrameBehind(read, 0))
      throw damaged(this.#path, `record ${position.index + 1} does not match its checksum`)
    let length = read.length
    while (length > 0 && read[length - 1] === 0) length--
    await this.#rewrite(this.end, Buffer.alloc(length))
  }

  /** Nothing is known of the last segment after a failed write: it is opened and read again. */
  async #reopen(): Promise<void> {
    await this.#files.closeAll()
    await this.#list()
    await this.#enterSegment(this.end)
    this.isBroken = false
  }
}
