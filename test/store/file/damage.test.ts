/** Damage by the disk: every case ends in an error that says what is wrong, or changes no acknowledged record. */
import { execFileSync, fork, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { LeaseError } from '../../../src/errors.ts'
import { type Database, type DatabaseOptions, type Engine, loadEngine } from '../../../src/store/file/engine.ts'
import { FileStore } from '../../../src/store/file/file.ts'
import { FileLog } from '../../../src/store/file/log.ts'
import { DiskFolder } from '../../../src/store/file/log-folder.ts'
import { type LogRecord, type Position, START, type Store } from '../../../src/store.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'

const engine = await loadEngine()
const RECORDS = 40
/** The records of the image end before this byte of their segment. */
const USED = 80_000

describe('a damaged file', () => {
  test.each(['closed', 'crashed'] as const)('a flipped bit in a %s log is an error, or changes nothing', async how => {
    using folder = new Folder()
    const image = await makeImage(folder, how)
    const chance = new ManualClock({ seed: how === 'closed' ? 11 : 12 })
    const outcomes = new Map<string, number>()
    for (let i = 0; i < 250; i++) {
      const file = image.files[Math.floor(chance.random() * image.files.length)]!
      const bytes = readFileSync(join(image.folder, file))
      // A segment is mostly zeros.
      const bit = Math.floor(chance.random() * Math.min(bytes.length, USED) * 8)
      bytes[bit >> 3]! ^= 1 << (bit & 7)
      await check(image, folder, file, bytes, outcomes, `bit ${bit} of ${file}`)
    }
    expect(outcomes.get('harmless') ?? 0).toBeGreaterThan(0)
    expect(outcomes.get('damaged') ?? 0).toBeGreaterThan(0)
  })

  test.each(['closed', 'crashed'] as const)('a %s log that is truncated anywhere is an error, or is complete', async how => {
    using folder = new Folder()
    const image = await makeImage(folder, how)
    const chance = new ManualClock({ seed: 13 })
    const outcomes = new Map<string, number>()
    for (const file of image.files) {
      const bytes = readFileSync(join(image.folder, file))
      const lengths = [0, 1, 100, 512, 4_096, bytes.length >> 1, USED >> 1, USED >> 2, bytes.length - 4_096, bytes.length - 1]
      for (let i = 0; i < 20; i++) lengths.push(Math.floor(chance.random() * bytes.length))
      for (const length of lengths.filter(length => length >= 0)) {
        await check(image, folder, file, bytes.subarray(0, length), outcomes, `${file} cut to ${length}`)
      }
    }
    expect(outcomes.get('damaged') ?? 0).toBeGreaterThan(0)
  })

  test('a sector or a page overwritten with zeros is an error, or changes nothing', async () => {
    using folder = new Folder()
    const image = await makeImage(folder, 'closed')
    for (const file of image.files) {
      const original = readFileSync(join(image.folder, file))
      const outcomes = new Map<string, number>()
      for (let at = 0; at < Math.min(original.length, USED); at += 4_096)
        for (const length of [512, 4_096])
          await check(
            image,
            folder,
            file,
            Buffer.from(original).fill(0, at, Math.min(at + length, original.length)),
            outcomes,
            `${length} bytes of ${file} at ${at}`,
          )
      // The last position and the snapshot before the newest are not needed.
      expect(outcomes.get('damaged') ?? 0, file).toBeGreaterThan(/head|15-\w+.snapshot/.test(file) ? -1 : 0)
    }
  })

  test('a segment that lost acknowledged records is an error that says so, and the files are left as they are', async () => {
    using folder = new Folder()
    const image = await makeImage(folder, 'crashed')
    const path = copy(image.folder, folder)
    const segment = `${path}-log/0000000000000001.log`
    truncateSync(segment, USED >> 1)
    const before = readFileSync(segment)
    for (let i = 0; i < 2; i++) {
      const error = await refused(path)
      expect(error.message).toMatch(/damaged: record \d+ does not match its checksum.*Restore it from a backup, or move it away/)
      expect(error).toMatchObject({ code: 'UNAVAILABLE', reason: 'damaged', facts: { path } })
      expect(readFileSync(segment).equals(before)).toBe(true)
    }
    writeFileSync(segment, Buffer.concat([before, Buffer.alloc(USED)]).fill(0, 1_000))
    expect((await refused(path)).message).toMatch(/damaged: record \d+ does not match its checksum/)
    writeFileSync(segment, Buffer.from(before).fill(0, 64))
    expect((await refused(path)).message).toContain('it ends at 0, although 40 was acknowledged')
  })

  test('two logs that continue from the same records are not mixed up, even if each frame is intact', async () => {
    using folder = new Folder()
    const image = await makeImage(folder, 'closed')
    const [path, other] = [copy(image.folder, folder), copy(image.folder, folder)]
    // As after a restore that not every process noticed.
    const ends: number[] = []
    for (const [n, each] of [path, other].entries()) {
      const log = new FileLog({ path: each, engine, timeout: 1_000 })
      let { head } = await log.open()
      for (let i = 0; i < 2; i++) {
        const answer = await log.append(new Uint8Array(100).fill(n + 1), head)
        if (answer.kind === 'appended') head = answer.position
        ends.push(endOf(readFileSync(`${each}-log/0000000000000001.log`)))
      }
      await log.close()
    }
    const [mine, theirs] = [path, other].map(each => readFileSync(`${each}-log/0000000000000001.log`))
    theirs!.copy(mine!, ends[0], ends[0], ends[1]) // the last record of the other one
    writeFileSync(`${path}-log/0000000000000001.log`, mine!)
    expect((await refused(path)).message).toMatch(/damaged: another record follows 41/)
  })

  test('an emptied or deleted file beside its records does not count as new; one without them does', async () => {
    using folder = new Folder()
    const image = await makeImage(folder, 'closed')
    const path = copy(image.folder, folder)
    truncateSync(path, 0)
    expect((await refused(path)).message).toContain(`it is empty, although ${path}-log has the records of a log`)
    rmSync(path)
    const error = await refused(path)
    expect(error.message).toContain(`it is missing, and ${path}-log has the records of a log. It was left as it is`)
    expect(readdirSync(join(path, '..')).toSorted()).toEqual(['log.db-head', 'log.db-log', 'log.db-owner'])
    rmSync(`${path}-log`, { recursive: true })
    const log = new FileLog({ path, engine, timeout: 1_000 })
    expect((await log.open()).head).toEqual(START)
    await log.close()
  })

  test('a log without its segments is not a new one, even if nothing says how many records it had', async () => {
    using folder = new Folder()
    const image = await makeImage(folder, 'closed')
    const path = copy(image.folder, folder)
    rmSync(`${path}-log`, { recursive: true })
    expect((await refused(path)).message).toContain(`${path}-log is missing, although 40 records were acknowledged`)
    expect(existsSync(`${path}-log`)).toBe(false)
    rmSync(`${path}-head`)
    expect((await refused(path)).message).toContain('its segments are missing')
  })

  test('a log whose snapshots are missing is an error if records before them were removed', async () => {
    using folder = new Folder()
    const path = folder.path
    const log = new FileLog({ path, engine, timeout: 1_000 })
    let { head } = await log.open()
    for (let i = 1; i <= 60; i++) {
      const answer = await log.append(new Uint8Array(100_000).fill(i), head)
      if (answer.kind === 'appended') head = answer.position
      if (i % 20 === 0) await log.snapshot(head, chunks(i))
    }
    await log.close()
    for (const name of readdirSync(`${path}-log`)) if (name.endsWith('.snapshot')) rmSync(join(`${path}-log`, name))
    expect((await refused(path)).message).toContain('record 1 is missing')
  })
})

describe('an unusable file', () => {
  test('of a newer format is left unchanged', async () => {
    using folder = new Folder()
    const { path } = await makeImage(folder, 'closed')
    change(path, 'pragma user_version = 3')
    const before = readFileSync(path)
    expect(await refused(path)).toMatchObject({ code: 'UNSUPPORTED', reason: 'newer', facts: { version: 3 } })
    expect(readFileSync(path).equals(before)).toBe(true)
  })

  test('of the layout before this one is left unchanged', async () => {
    using folder = new Folder()
    const path = folder.path
    const wal = 'pragma journal_mode = wal; pragma application_id = 0x4c656173; pragma user_version = 1'
    change(path, `${wal}; create table entry (idx integer primary key, bytes blob not null); insert into entry values (1, x'00')`)
    execFileSync('chmod', ['600', path])
    const before = readFileSync(path)
    const error = await refused(path)
    expect(error).toMatchObject({ code: 'UNSUPPORTED', reason: 'older', facts: { path, version: 1 } })
    expect(error.message).toMatch(/was written by an earlier build of Leasehold.* Copy its leases with leasehold backup/)
    expect(readFileSync(path).equals(before)).toBe(true)
    expect(readdirSync(folder.name)).toEqual(['log.db'])
  })

  test('of another program is left unchanged', async () => {
    using folder = new Folder()
    const path = join(folder.name, 'theirs.db')
    change(path, 'create table t (a); insert into t values (1)')
    const before = readFileSync(path)
    expect(await refused(path)).toMatchObject({ code: 'INVALID', reason: 'foreign' })
    expect(readFileSync(path).equals(before)).toBe(true)
    writeFileSync(path, 'Dear diary, '.repeat(1_000))
    expect(await refused(path)).toMatchObject({ code: 'INVALID', reason: 'foreign' })
  })

  test('that is a folder is rejected', async () => {
    using folder = new Folder()
    expect(await refused(folder.name)).toMatchObject({ code: 'INVALID', reason: 'folder' })
  })

  test('whose folder is a file is rejected', async () => {
    using folder = new Folder()
    writeFileSync(join(folder.name, 'plain'), '')
    expect(await refused(join(folder.name, 'plain', 'log.db'))).toMatchObject({ code: 'UNAVAILABLE', reason: 'permission' })
  })

  test('without an engine gives an error that names the package to install', async () => {
    await expect(loadEngine(['node:no-such-engine', 'no-such-engine'])).rejects.toMatchObject({
      code: 'UNSUPPORTED',
      message: expect.stringContaining('npm install @photostructure/sqlite@1'),
    })
  })
})

test('a second copy of SQLite in one process is refused: it does not respect the locks of the first', async () => {
  const other = 'data:text/javascript,export const DatabaseSync = class {}'
  await expect(loadEngine([other])).rejects.toMatchObject({ code: 'UNSUPPORTED', message: expect.stringContaining('locks') })
  expect(await loadEngine()).toBe(engine)
})

describe('a failing disk', () => {
  test('an append whose write fails is UNKNOWN, one whose lock fails is UNAVAILABLE, and later appends succeed', async () => {
    using folder = new Folder()
    let failing: { readonly statement: string; readonly errcode: number } | undefined
    let code = ''
    const open = DiskFolder.prototype.open
    const spy = vi.spyOn(DiskFolder.prototype, 'open').mockImplementation(async function (this: DiskFolder, name) {
      const file = await open.call(this, name)
      if (file === undefined) return undefined
      const write = file.write.bind(file)
      file.write = async (bytes, at) => {
        if (code !== '') throw Object.assign(new Error('it failed'), { code })
        await write(bytes, at)
      }
      return file
    })
    onTestFinished(() => spy.mockRestore())
    const log = new FileLog({ path: folder.path, engine: failingEngine(() => failing), timeout: 1_000 })
    const { head } = await log.open()
    for (const [each, reason] of [
      ['EIO', 'io'],
      ['ENOSPC', 'full'],
      ['EDQUOT', 'full'],
      ['EROFS', 'readonly'],
    ] as const) {
      code = each
      await expect(log.append(Uint8Array.of(1), head)).rejects.toMatchObject({ code: 'UNKNOWN', reason })
      code = ''
      await log.append(Uint8Array.of(2), head).catch(() => {})
    }
    const [ioerrFsync, full, corrupt, constraint, error] = [1_034, 13, 11, 19, 1]
    for (const [errcode, reason] of [
      [ioerrFsync, 'io'],
      [full, 'full'],
      [corrupt, 'damaged'],
      [constraint, 'damaged'],
      [error, 'damaged'],
    ] as const) {
      failing = { statement: 'begin immediate', errcode }
      await expect(log.append(Uint8Array.of(1), head)).rejects.toMatchObject({ code: 'UNAVAILABLE', reason })
    }
    failing = undefined
    const read = await log.read(head)
    if (read.kind !== 'records') expect.fail(read.kind)
    expect(read.records.map(({ bytes }) => bytes[0])).toEqual([2, 2, 2, 2])
    expect(await log.append(Uint8Array.of(1), head)).toMatchObject({ kind: 'appended', position: { index: 5 } })
    await log.close()
  })

  whereAvailable('strace', ['-V'])('an append whose synced write fails is not acknowledged, and acknowledged records stay', async () => {
    using folder = new Folder()
    const child = fork(fileURLToPath(new URL('../../support/file-child.mjs', import.meta.url)), { serialization: 'advanced', execArgv: [] })
    const ask = async (...request: unknown[]): Promise<[boolean, { code: string; facts: object; position: Position }]> => {
      child.send([0, ...request])
      const [[, done, value]] = (await once(child, 'message')) as [[number, boolean, never]]
      return [done, value]
    }
    await ask('open', { path: folder.path })
    for (let i = 1; i <= 3; i++) expect((await ask('append', `${i}`))[1].position.index).toBe(i)
    const inject = ['-e', 'trace=pwrite64,fdatasync', '-e', 'inject=pwrite64,fdatasync:error=EIO']
    const strace = spawn('strace', ['-f', '-o', '/dev/null', ...inject, '-p', `${child.pid}`], { stdio: ['ignore', 'ignore', 'pipe'] })
    const said: string[] = []
    strace.stderr.on('data', chunk => said.push(String(chunk)))
    await expect.poll(() => said.join('')).toContain('attached')
    expect(await ask('append', 'lost?')).toMatchObject([false, { code: 'UNKNOWN', reason: 'io' }])
    const gone = once(strace, 'exit')
    strace.kill('SIGINT')
    await gone
    expect((await ask('append', '4'))[0]).toBe(true)
    child.kill('SIGKILL')
    await once(child, 'exit')
    await using store = new FileStore({ path: folder.path })
    await store.open()
    const words = (await readAll(store)).map(({ bytes }) => new TextDecoder().decode(bytes)).filter(word => word !== 'lost?')
    expect(words).toEqual(['1', '2', '3', '4'])
  })

  whereAvailable('mount', ['--version'])(
    'a full disk rejects appends and keeps acknowledged records, and appends succeed again when there is room',
    async () => {
      using disk = new Disk(2)
      const path = join(disk.name, 'log.db')
      await using store = new FileStore({ path })
      await store.open()
      let after = START
      const error = await (async () => {
        for (;;) {
          const answer = await store.append(new Uint8Array(20_000).fill(after.index), after)
          if (answer.kind !== 'appended') expect.fail(answer.kind)
          after = answer.position
        }
      })().catch(error => error)
      expect(error).toBeInstanceOf(LeaseError)
      expect(['UNKNOWN', 'UNAVAILABLE']).toContain(error.code)
      expect(error).toMatchObject({ reason: 'full', facts: { path } })
      expect(error.message).toContain('is full')
      expect(after.index).toBeGreaterThan(10)
      expect((await readAll(store)).map(({ position }) => position.index)).toEqual(Array.from({ length: after.index }, (_, i) => i + 1))

      writeFileSync(join(disk.name, 'filler'), '')
      fill(join(disk.name, 'filler'))
      const other = new FileStore({ path: join(disk.name, 'other.db') })
      await expect(other.open()).rejects.toMatchObject({ code: 'UNAVAILABLE', reason: 'full' })

      disk.resize(8)
      expect(await store.append(Uint8Array.of(1), after)).toMatchObject({ kind: 'appended' })
      await using later = new FileStore({ path })
      await later.open()
      const records = await readAll(later)
      for (const { position, bytes } of records.slice(0, after.index)) expect(bytes[0]).toBe((position.index - 1) % 256)
    },
  )

  whereAvailable('mount', ['--version'])('a disk mounted read-only is an error, and nothing on it changes', async () => {
    using disk = new Disk(4)
    const path = join(disk.name, 'log.db')
    // In another process: some engines close a file only when its statements are garbage-collected.
    const child = fork(fileURLToPath(new URL('../../support/file-child.mjs', import.meta.url)), { serialization: 'advanced', execArgv: [] })
    for (const request of [
      ['open', { path }],
      ['append', 'a'],
    ]) {
      child.send([0, ...request])
      expect((await once(child, 'message'))[0][1]).toBe(true)
    }
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
    disk.remount('ro')
    const error = await refused(path)
    expect(error.code).toBe('UNAVAILABLE')
    expect(['readonly', 'permission']).toContain(error.reason)
    expect(await refused(join(disk.name, 'new.db'))).toMatchObject({ code: 'UNAVAILABLE' })
    disk.remount('rw')
    await using store = new FileStore({ path })
    expect((await store.open()).head.index).toBe(1)
  })

  test.runIf(process.getuid?.() === 0)('a file of another user is rejected', async () => {
    using folder = new Folder()
    const { path } = await makeImage(folder, 'closed')
    execFileSync('chmod', ['755', folder.name, join(folder.name, 'made')])
    for (const mode of ['600', '644']) {
      execFileSync('chmod', [mode, path])
      const child = fork(fileURLToPath(new URL('../../support/file-child.mjs', import.meta.url)), {
        serialization: 'advanced',
        execArgv: [],
        uid: 65_534,
      })
      child.send([0, 'open', { path }])
      const [answer] = await once(child, 'message')
      expect(answer).toMatchObject([0, false, { code: 'UNAVAILABLE', facts: { path } }])
      expect(['permission', 'readonly']).toContain(answer[2].reason)
      child.kill('SIGKILL')
    }
  })
})

// ---------------------------------------------------------------------------------------------------------------------------

interface Image {
  readonly folder: string
  readonly path: string
  readonly files: readonly string[]
  readonly content: string
}

class Folder implements Disposable {
  readonly name = mkdtempSync(join(tmpdir(), 'leasehold-damage-'))

  get path(): string {
    return join(this.name, 'log.db')
  }

  [Symbol.dispose](): void {
    rmSync(this.name, { recursive: true })
  }
}

/** A small separate disk, in memory. */
class Disk implements Disposable {
  readonly name = mkdtempSync(join(tmpdir(), 'leasehold-disk-'))

  constructor(megabytes: number) {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', this.name])
  }

  resize(megabytes: number): void {
    execFileSync('mount', ['-o', `remount,size=${megabytes}m`, this.name])
  }

  remount(how: 'ro' | 'rw'): void {
    execFileSync('mount', ['-o', `remount,${how}`, this.name])
  }

  [Symbol.dispose](): void {
    execFileSync('umount', ['-l', this.name])
    rmSync(this.name, { recursive: true })
  }
}

/** A log with records, a trimmed beginning and two snapshots; closed properly, or as a crash of the machine leaves it. */
async function makeImage(folder: Folder, how: 'closed' | 'crashed'): Promise<Image> {
  const [made, image] = [join(folder.name, 'made'), join(folder.name, 'image')]
  mkdirSync(made)
  const path = join(made, 'log.db')
  const log = new FileLog({ path, engine, timeout: 1_000 })
  let { head } = await log.open()
  for (let i = 1; i <= RECORDS; i++) {
    const answer = await log.append(new Uint8Array(i % 7 === 0 ? 9_000 : 150).fill(i), head)
    if (answer.kind === 'appended') head = answer.position
    if (i % 15 !== 0) continue
    await log.snapshot(head, chunks(i))
  }
  await new Promise(resolve => setImmediate(resolve)) // the last position is written after the answer
  const content = await contentOf(log)
  // In another process: closing a file that SQLite has open in this process would release its locks.
  if (how === 'crashed') execFileSync('cp', ['-r', made, image])
  await log.close()
  if (how === 'closed') execFileSync('cp', ['-r', made, image])
  const files = filesIn(image).filter(file => statSync(join(image, file)).size > 0)
  expect(files.filter(file => !file.endsWith('.part')).map(file => file.replace(/[0-9a-f-]{33}/, 'N'))).toEqual([
    'log.db',
    'log.db-head',
    'log.db-log/0000000000000001.log',
    'log.db-log/N.snapshot',
    'log.db-log/N.snapshot',
  ])
  return { folder: image, path, files, content }
}

async function check(
  image: Image,
  folder: Folder,
  file: string,
  bytes: Uint8Array,
  outcomes: Map<string, number>,
  what: string,
): Promise<void> {
  const path = copy(image.folder, folder)
  writeFileSync(join(path, '..', file), bytes)
  const log = new FileLog({ path, engine, timeout: 1_000 })
  let outcome = 'harmless'
  try {
    const { head } = await log.open()
    expect(await contentOf(log), what).toBe(image.content)
    const appended = await log.append(Uint8Array.of(1), head)
    expect(appended, what).toMatchObject({ kind: 'appended', position: { index: RECORDS + 1 } })
    expect(await log.read(head), what).toMatchObject({ records: [{ position: { index: RECORDS + 1 } }] })
  } catch (error) {
    if (!(error instanceof LeaseError)) throw error
    expect(['UNAVAILABLE', 'UNKNOWN', 'UNSUPPORTED', 'INVALID'], what).toContain(error.code)
    expect(error, what).toHaveProperty('reason')
    outcome = String(error.reason)
  } finally {
    await log.close()
  }
  outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1)
}

/** Everything that a reader can read from the log, as one string. */
async function contentOf(log: FileLog): Promise<string> {
  const newest = (await log.newest())!
  const chunks: string[] = []
  for await (const chunk of newest.bytes) chunks.push(Buffer.from(chunk).toString('hex'))
  const read = await log.read(newest.position)
  if (read.kind !== 'records') expect.fail(read.kind)
  const records = read.records.map(({ position, bytes }) => `${position.index} ${position.nonce} ${Buffer.from(bytes).toString('hex')}`)
  return [`${newest.position.index} ${newest.position.nonce}`, ...chunks, ...records].join('\n')
}

async function* chunks(number: number): AsyncGenerator<Uint8Array> {
  for (let i = 0; i < 3; i++) yield new Uint8Array(5_000).fill(number + i)
}

/** The end of the frames of a segment: no record of these tests ends with zeros. */
function endOf(segment: Buffer): number {
  let end = segment.length
  while (segment[end - 1] === 0) end--
  return Math.ceil(end / 8) * 8
}

function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter(file => statSync(join(folder, file)).isFile())
    .toSorted()
}

function copy(image: string, folder: Folder): string {
  const target = mkdtempSync(join(folder.name, 'copy-'))
  execFileSync('cp', ['-rp', `${image}/.`, target])
  return join(target, 'log.db')
}

async function refused(path: string): Promise<LeaseError> {
  const log = new FileLog({ path, engine, timeout: 1_000 })
  const error = await log.open().then(
    () => expect.fail('opened'),
    error => error,
  )
  expect(error).toBeInstanceOf(LeaseError)
  return error
}

function change(path: string, sql: string): void {
  const db = new engine.DatabaseSync(path, { timeout: 1_000 })
  db.exec(sql)
  db.close()
}

async function readAll(store: Store): Promise<LogRecord[]> {
  const all: LogRecord[] = []
  for (;;) {
    const read = await store.read(all.at(-1)?.position ?? START)
    if (read.kind !== 'records') expect.fail(read.kind)
    if (read.records.length === 0) return all
    all.push(...read.records)
  }
}

function fill(file: string): void {
  try {
    for (;;) writeFileSync(file, Buffer.alloc(4_096), { flag: 'a' })
  } catch {
    // the disk is full
  }
}

/** The real engine, with statements that fail on demand. */
function failingEngine(failing: () => { readonly statement: string; readonly errcode: number } | undefined): Engine {
  class Failing {
    readonly #db: Database

    constructor(path: string, options: DatabaseOptions) {
      this.#db = new engine.DatabaseSync(path, options)
    }

    exec(sql: string): void {
      this.#db.exec(sql)
    }

    prepare(sql: string): ReturnType<Database['prepare']> {
      const statement = this.#db.prepare(sql)
      return {
        ...{
          get: statement.get.bind(statement),
          all: statement.all.bind(statement),
          setReadBigInts: statement.setReadBigInts.bind(statement),
        },
        run: (...values) => {
          const { statement: text, errcode } = failing() ?? {}
          if (text && sql.startsWith(text)) throw Object.assign(new Error('it failed'), { errcode })
          return statement.run(...values)
        },
      }
    }

    function(...args: Parameters<Database['function']>): void {
      this.#db.function(...args)
    }

    close(): void {
      this.#db.close()
    }
  }
  return { DatabaseSync: Failing }
}

/** Skips a test, and says so, if this machine lacks the program. */
function whereAvailable(program: string, args: readonly string[]): typeof test | typeof test.skip {
  const able = program === 'mount' ? canMount() : spawnSync(program, args).status === 0
  if (!able) console.warn(`SKIPPED: ${program} is not available here`)
  return able ? test : test.skip
}

function canMount(): boolean {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-disk-'))
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', folder]).status === 0
  if (mounted) execFileSync('umount', [folder])
  if (existsSync(folder)) rmSync(folder, { recursive: true })
  return mounted
}
