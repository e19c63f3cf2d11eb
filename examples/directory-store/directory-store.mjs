/**
 * A log in a directory: one file for each record, one for each snapshot. Shared by the processes of one machine.
 *
 *     DIRECTORY/records/0000000000000017      the nonce (8 bytes), then the bytes of record 17
 *     DIRECTORY/snapshots/0000000000000015.NONCE
 *     DIRECTORY/drafts/…                      files that are being written
 *
 * A process that appends writes a draft, syncs it, and links it to the next free index. `link` fails if the name is taken, so exactly one of
 * several processes gets an index, and no reader ever sees half a record. The others link their drafts to later indexes.
 *
 * Guaranteed: one order, durable appends, a log that lost its tail is reported (`diverged`).
 * Not guaranteed: anything on a network file system; that a loss of the tail in the very moment of an append is noticed by that append,
 * because a file system cannot check one file and link another in one step. The next call notices it.
 */
import { randomBytes } from 'node:crypto'
import { link, mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { LeaseError, START } from 'leasehold/store'

/** One answer carries at most this much. A larger record travels alone. */
const MAX_RECORDS = 1_000
const MAX_BYTES = 1_048_576
/** How often, in ms, a waiting reader looks for new records. */
const POLL = 20

/** @implements {import('leasehold/store').Store} */
export class DirectoryStore {
  profile = {
    store: 'directory',
    durable: true,
    failover: false,
    push: false,
    shared: true,
    ages: false,
    notes: ['For the processes of one machine, on a local disk.', 'The age of records is not known.'],
  }
  #records
  #snapshots
  #drafts
  #opened = false
  #closing = new AbortController()

  /** @param {string} directory */
  constructor(directory) {
    this.#records = join(directory, 'records')
    this.#snapshots = join(directory, 'snapshots')
    this.#drafts = join(directory, 'drafts')
  }

  async open() {
    this.#closing.signal.throwIfAborted()
    for (const folder of [this.#records, this.#snapshots, this.#drafts]) await mkdir(folder, { recursive: true })
    this.#opened = true
    const snapshot = await this.newest()
    const [last] = (await this.#indexes()).slice(-1)
    const head = last === undefined ? START : (await this.#record(last)).position
    return snapshot === undefined ? { head } : { head, snapshot }
  }

  async append(record, after) {
    this.#mustBeOpen()
    const rejected = await this.#find(after)
    if (rejected) return rejected
    const nonce = randomBytes(8)
    const draft = await this.#write([nonce, record])
    try {
      const missed = []
      let size = 0
      for (let index = after.index + 1; ; index++) {
        if (await this.#link(draft, index)) {
          const position = { index, nonce: nonce.readBigUInt64BE() }
          const complete = missed.length === index - after.index - 1 && size <= MAX_BYTES
          return complete ? { kind: 'appended', position, missed } : { kind: 'behind', position }
        }
        if (missed.length > MAX_RECORDS || size > MAX_BYTES) {
          // Far behind: go to the end of the log instead of reading all of it.
          index = Math.max(index, (await this.#indexes()).at(-1) ?? 0)
          continue
        }
        const next = await this.#record(index)
        if (next === undefined) continue // trimmed since
        missed.push(next)
        size += next.bytes.length
      }
    } finally {
      await rm(draft, { force: true })
    }
  }

  async read(after, { wait } = {}) {
    for (;;) {
      wait?.throwIfAborted()
      this.#mustBeOpen()
      const rejected = await this.#find(after)
      if (rejected) return rejected
      const records = await this.#following(after)
      if (wait === undefined || records.length > 0) return { kind: 'records', records }
      await this.#pause(wait)
    }
  }

  async snapshot(at, bytes) {
    this.#mustBeOpen()
    if (await this.#isOld(at)) return 'older'
    const draft = await this.#write(bytes)
    try {
      this.#mustBeOpen()
      if (await this.#isOld(at)) return 'older' // another process was quicker
      await rename(draft, join(this.#snapshots, nameOf(at)))
      await sync(this.#snapshots).catch(cause => fail('UNKNOWN', cause))
    } finally {
      await rm(draft, { force: true })
    }
    await this.#trim().catch(() => {}) // the next snapshot tries again
    return 'kept'
  }

  async newest() {
    this.#mustBeOpen()
    const name = (await readdir(this.#snapshots)).sort().at(-1)
    if (name === undefined) return undefined
    const file = join(this.#snapshots, name)
    return { position: positionOf(name), age: 0, bytes: { [Symbol.asyncIterator]: () => this.#chunks(file) } }
  }

  async [Symbol.asyncDispose]() {
    this.#closing.abort(new LeaseError('UNAVAILABLE', 'the store was closed'))
  }

  /** Why the log does not contain the position; undefined if it does. */
  async #find({ index, nonce }) {
    const found = index === 0 ? START : (await this.#record(index))?.position
    if (found !== undefined && found.nonce !== nonce) return { kind: 'diverged', reason: `another record is at ${index}` }
    if (index > 0 && found !== undefined) return undefined
    const indexes = await this.#indexes()
    const [first = 1, last = 0] = [indexes.at(0), indexes.at(-1)]
    // `START` is in the log until record 1 is trimmed. Of a trimmed log the first record is kept, so that a reader there can go on.
    if (index < first) return index === 0 && first === 1 ? undefined : { kind: 'trimmed' }
    return { kind: 'diverged', reason: `the log ends at ${last}, before ${index}` }
  }

  async #following({ index }) {
    const records = []
    let size = 0
    while (records.length < MAX_RECORDS) {
      const record = await this.#record(index + records.length + 1)
      size += record?.bytes.length ?? 0
      if (record === undefined || (size > MAX_BYTES && records.length > 0)) break
      records.push(record)
    }
    return records
  }

  async #record(index) {
    const bytes = await readFile(join(this.#records, digits(index))).catch(unlessAbsent)
    return bytes && { position: { index, nonce: bytes.readBigUInt64BE() }, bytes: bytes.subarray(8), age: 0 }
  }

  async #indexes() {
    return (await readdir(this.#records)).map(Number).sort((a, b) => a - b)
  }

  /** False if another process has taken the index. */
  async #link(draft, index) {
    try {
      await link(draft, join(this.#records, digits(index)))
    } catch (error) {
      if (error.code === 'EEXIST') return false
      throw fail('UNAVAILABLE', error)
    }
    // From here on the record may be in the log, whatever happens.
    await sync(this.#records).catch(cause => fail('UNKNOWN', cause))
    return true
  }

  /** Writes a draft and syncs it. Nothing of it is in the log yet. */
  async #write(chunks) {
    const path = join(this.#drafts, randomBytes(8).toString('hex'))
    try {
      const file = await open(path, 'wx')
      try {
        for await (const chunk of chunks) await file.write(chunk)
        await file.sync()
      } finally {
        await file.close()
      }
      return path
    } catch (error) {
      await rm(path, { force: true })
      throw error.code?.startsWith('E') && error.syscall ? fail('UNAVAILABLE', error) : error
    }
  }

  async *#chunks(file) {
    this.#mustBeOpen()
    const bytes = await readFile(file).catch(cause => fail('UNAVAILABLE', cause)) // newer snapshots have replaced it
    if (bytes.length > 0) yield bytes
  }

  async #isOld(at) {
    const newest = await this.newest()
    if (newest !== undefined && newest.position.index >= at.index) return true
    const rejected = await this.#find(at)
    if (rejected?.kind === 'diverged') throw new LeaseError('DIVERGED', `no snapshot can be kept of ${at.index}: ${rejected.reason}`)
    return rejected !== undefined
  }

  /** Deletes what came before the last snapshot but one. From the oldest on, so that there is never a gap. */
  async #trim() {
    const names = (await readdir(this.#snapshots)).sort()
    const kept = names.at(-2)
    if (kept === undefined) return
    for (const name of names.slice(0, -2)) await rm(join(this.#snapshots, name), { force: true })
    for (const index of await this.#indexes())
      if (index < positionOf(kept).index) await rm(join(this.#records, digits(index)), { force: true })
  }

  /** Neither the pause nor the store keeps the process alive. */
  async #pause(wait) {
    const closing = this.#closing.signal
    const either = new AbortController()
    const end = () => either.abort()
    for (const signal of [wait, closing]) signal.addEventListener('abort', end)
    try {
      if (!wait.aborted && !closing.aborted) await sleep(POLL, undefined, { signal: either.signal, ref: false }).catch(() => {})
    } finally {
      for (const signal of [wait, closing]) signal.removeEventListener('abort', end)
    }
  }

  #mustBeOpen() {
    this.#closing.signal.throwIfAborted()
    if (!this.#opened) throw new LeaseError('UNAVAILABLE', 'the store was not opened')
  }
}

function digits(index) {
  return String(index).padStart(16, '0')
}

function nameOf({ index, nonce }) {
  return `${digits(index)}.${nonce}`
}

function positionOf(name) {
  const [index, nonce] = name.split('.')
  return { index: Number(index), nonce: BigInt(nonce) }
}

/** A name in a directory survives a crash only once the directory has been synced. */
async function sync(folder) {
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

function unlessAbsent(error) {
  if (error.code === 'ENOENT') return undefined
  throw fail('UNAVAILABLE', error)
}

function fail(code, cause) {
  throw new LeaseError(code, `the directory of the log failed: ${cause.message}`, { cause })
}
