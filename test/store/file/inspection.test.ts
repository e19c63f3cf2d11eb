/** A rejected open changes nothing: every file in the folder stays the same, byte for byte. */
import { execFileSync, fork } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { LeaseError } from '../../../src/errors.ts'
import { Replica } from '../../../src/replica/replica.ts'
import { loadEngine } from '../../../src/store/file/engine.ts'
import { fileError, isBusy } from '../../../src/store/file/errors.ts'
import { FileStore } from '../../../src/store/file/file.ts'
import { START } from '../../../src/store.ts'
import { Place } from '../../support/cli.ts'

const { DatabaseSync } = await loadEngine()

describe('a rejected open leaves every file unchanged:', () => {
  test('an intact database with outdated segments', async () => {
    using folder = new Folder()
    const [early, late] = [await folder.crashed('early', 3), await folder.closed('late', 400)]
    const path = folder.place('mixed')
    folder.copy(late, path, ['', '-head', '-owner'])
    folder.copy(early, path, ['-log'])
    const error = await folder.refused(path)
    expect(error).toMatchObject({ code: 'UNAVAILABLE', reason: 'damaged', facts: { path } })
    expect(error.message).toMatch(/belongs to another log.*It was left as it is/s)
    rmSync(`${path}-log`, { recursive: true })
    folder.copy(late, path, ['-log'])
    await using store = new FileStore({ path })
    expect((await store.open()).head.index).toBe(400)
  })

  test('segments of an earlier moment of the same log', async () => {
    using folder = new Folder()
    const early = await folder.crashed('made', 3)
    const path = join(folder.name, 'made-live', 'log.db')
    await fill(path, 30)
    rmSync(`${path}-log`, { recursive: true })
    folder.copy(early, path, ['-log'])
    expect((await folder.refused(path)).message).toContain('it ends at 3, although 33 was acknowledged. It was left as it is')
  })

  test('an empty database, or none, beside segments that contain records', async () => {
    using folder = new Folder()
    const made = await folder.crashed('made', 3)
    for (const sides of [['-log'], ['-log', '-head', '-owner']]) {
      for (const empty of [true, false]) {
        const path = folder.place(`${sides.length} ${empty}`)
        folder.copy(made, path, sides)
        if (empty) writeFileSync(path, '', { mode: 0o600 })
        const error = await folder.refused(path)
        expect(error).toMatchObject({ code: 'UNAVAILABLE', reason: 'damaged', facts: { path } })
        expect(error.message).toMatch(/(is empty|is missing).*left as it is/s)
      }
    }
  })

  test('an intact database whose segment was truncated and lost acknowledged records', async () => {
    using folder = new Folder()
    const path = await folder.crashed('made', 30)
    truncateSync(segmentOf(path), 6_000)
    for (let i = 0; i < 2; i++) {
      const error = await folder.refused(path)
      expect(error.message).toMatch(/damaged: record \d+ does not match its checksum.*Restore it from a backup, or move it away/s)
    }
  })

  test('a folder of segments that others may write, or that is a link or a file', async () => {
    using folder = new Folder()
    const path = await folder.closed('made', 3)
    chmodSync(`${path}-log`, 0o755)
    expect((await folder.refused(path)).message).toContain(`chmod 700 ${path}-log`)
    chmodSync(`${path}-log`, 0o700)
    renameSync(`${path}-log`, `${path}-moved`)
    symlinkSync(`${path}-moved`, `${path}-log`)
    expect(await folder.refused(path)).toMatchObject({ code: 'INVALID', reason: 'link' })
    rmSync(`${path}-log`)
    writeFileSync(`${path}-log`, '')
    expect(await folder.refused(path)).toMatchObject({ code: 'INVALID', reason: 'kind' })
  })

  test('a database of another program, closed, and as a crash leaves it', async () => {
    using folder = new Folder()
    for (const mode of ['delete', 'wal']) {
      const path = folder.place(`foreign-${mode}`)
      const theirs = new DatabaseSync(path, { timeout: 0 })
      execFileSync('chmod', ['600', path])
      theirs.exec(`pragma journal_mode = ${mode}; create table t (a); insert into t values (1)`)
      if (mode === 'wal') {
        const crashed = folder.place('foreign-crashed')
        for (const side of ['', '-wal']) execFileSync('cp', ['-p', `${path}${side}`, `${crashed}${side}`])
        expect(await folder.refused(crashed)).toMatchObject({ code: 'INVALID', reason: 'foreign' })
      }
      theirs.close()
      expect(await folder.refused(path)).toMatchObject({ code: 'INVALID', reason: 'foreign' })
    }
  })

  test('a database that another program has open', async () => {
    using folder = new Folder()
    const path = folder.place('theirs')
    writeFileSync(path, '', { mode: 0o600 })
    const child = fork(fileURLToPath(new URL('../../support/file-child.mjs', import.meta.url)), { serialization: 'advanced', execArgv: [] })
    child.send([
      0,
      'hold',
      path,
      'pragma journal_mode = wal; create table t (a); insert into t values (1); pragma wal_checkpoint; begin; select * from t',
    ])
    expect((await once(child, 'message'))[0]).toMatchObject([0, true, undefined])
    expect(await folder.refused(path)).toMatchObject({ code: 'INVALID', reason: 'foreign' })
    child.kill('SIGKILL')
  })

  test('a rollback journal of another program is not played back', async () => {
    using folder = new Folder()
    const path = folder.place('theirs')
    const theirs = new DatabaseSync(path, { timeout: 0 })
    execFileSync('chmod', ['600', path])
    theirs.exec('create table t (a); insert into t values (zeroblob(100000))')
    theirs.exec('pragma cache_spill = 1; pragma cache_size = 2; begin; update t set a = zeroblob(200000)')
    const crashed = folder.place('crashed')
    for (const side of ['', '-journal']) execFileSync('cp', ['-p', `${path}${side}`, `${crashed}${side}`])
    theirs.exec('rollback')
    theirs.close()
    expect(await folder.refused(crashed)).toMatchObject({ code: 'INVALID', reason: 'foreign' })
  })

  test('a file that is not a database', async () => {
    using folder = new Folder()
    for (const text of ['x', 'Dear diary, '.repeat(1_000)]) {
      const path = folder.place(`text-${text.length}`)
      writeFileSync(path, text, { mode: 0o600 })
      const error = await folder.refused(path)
      expect(error).toMatchObject({ code: 'INVALID', reason: 'foreign', facts: { path } })
      expect(error.message).toContain('is not a Leasehold file')
      expect(error.message).not.toMatch(/move|damaged|start with an empty log/)
    }
  })

  test('a system file: the error says that it is not a Leasehold file, and does not advise to move it or change its permissions', async () => {
    await using store = new FileStore({ path: '/etc/passwd' })
    const error = await store.open().catch(error => error)
    expect(error).toMatchObject({
      code: 'INVALID',
      reason: 'foreign',
      message: expect.stringContaining('is not a Leasehold file'),
    })
    expect(error.message).not.toMatch(/move|damaged|start with an empty log|chmod|chown/)
  })

  test('a folder', async () => {
    using folder = new Folder()
    const path = folder.place('a')
    mkdirSync(path)
    expect(await folder.refused(path)).toMatchObject({ code: 'INVALID', reason: 'folder' })
  })

  test('damaged pages, in a log that was closed and in one that crashed', async () => {
    using folder = new Folder()
    for (const made of [await folder.closed('closed', 60), await folder.crashed('crashed', 60)]) {
      for (const file of ['', '-log/0000000000000001.log']) {
        const pages = Math.min(8, Math.floor(statSync(`${made}${file}`).size / 4_096))
        for (let page = 0; page < pages; page++) {
          const path = folder.place(`${basename(dirname(made))}-${file.length}-${page}`)
          folder.copy(made, path, ['', '-log', '-head', '-owner'])
          const bytes = readFileSync(`${path}${file}`)
          bytes.fill(0xa5, page * 4_096, (page + 1) * 4_096)
          writeFileSync(`${path}${file}`, bytes)
          const before = folder.contents(path)
          const store = new FileStore({ path })
          const opened = await store.open().catch(error => error)
          await store[Symbol.asyncDispose]()
          if (!(opened instanceof LeaseError)) {
            expect(opened.head.index).toBe(60) // it was in zeros, or in the list of processes
            continue
          }
          expect(opened.reason, `page ${page}`).toBe('damaged')
          expect(opened.message).toContain('It was left as it is')
          expect(folder.contents(path), `page ${page}`).toEqual(before)
        }
      }
    }
  })

  test('a damaged record before the last', async () => {
    using folder = new Folder()
    const path = await folder.crashed('made', 20)
    const bytes = readFileSync(segmentOf(path))
    const at = bytes.indexOf(Buffer.alloc(400, 7)) // record 7
    expect(at).toBeGreaterThan(0)
    bytes[at]! ^= 1
    writeFileSync(segmentOf(path), bytes)
    const error = await folder.refused(path)
    expect(error.message).toContain('record 7 does not match its checksum')
  })
})

test('several processes at once: all open a log that crashed; none opens one with outdated segments, and it stays unchanged', async () => {
  using folder = new Folder()
  const [early, late, whole] = [await folder.crashed('early', 3), await folder.closed('late', 400), await folder.crashed('whole', 50)]
  const stale = folder.place('stale')
  folder.copy(late, stale, ['', '-head', '-owner'])
  folder.copy(early, stale, ['-log'])
  const before = folder.contents(stale)
  const children = Array.from({ length: 6 }, () =>
    fork(fileURLToPath(new URL('../../support/file-child.mjs', import.meta.url)), { serialization: 'advanced', execArgv: [] }),
  )
  const each = (path: string) =>
    Promise.all(
      children.map(async child => {
        child.send([0, 'open', { path }])
        return (await once(child, 'message'))[0] as [number, boolean, { readonly index: number; readonly facts: object }]
      }),
    )
  try {
    for (let round = 0; round < 3; round++)
      for (const answer of await each(stale)) expect(answer).toMatchObject([0, false, { reason: 'damaged' }])
    expect(folder.contents(stale)).toEqual(before)
    for (const answer of await each(whole)) expect(answer).toMatchObject([0, true, { index: 50 }])
  } finally {
    for (const child of children) child.kill('SIGKILL')
  }
})

describe('the message of a command', () => {
  test('about a file of another program says so, and does not advise to move it', async () => {
    await using here = new Place()
    writeFileSync(here.file('notes.txt'), 'Dear diary, '.repeat(1_000), { mode: 0o600 })
    for (const path of ['/etc/passwd', here.file('notes.txt')])
      for (const command of [['ls'], ['serve', '--listen', '127.0.0.1:0']]) {
        const { code, stderr } = await here.run([...command, '--store', `file:${path}`])
        expect(code).toBe(64)
        expect(stderr).toContain(`${path} is not a Leasehold file`)
        expect(stderr).not.toMatch(/move|damaged|start with an empty log|chmod|can be reached/)
      }
    expect(readdirSync(here.path)).toEqual(['notes.txt'])
  })

  test('about damage names it and advises to restore a backup', async () => {
    await using here = new Place()
    using folder = new Folder()
    const path = await folder.closed('made', 60)
    for (const file of [path, segmentOf(path)]) {
      const bytes = readFileSync(file)
      writeFileSync(file, Buffer.from(bytes).fill(0xa5, 4_096, 8_192))
      const { code, stderr } = await here.answer(['ls', '--store', `file:${path}`])
      expect(code, file).not.toBe(0)
      expect(stderr, file).toContain('is damaged')
      expect(stderr, file).toContain('leasehold restore FILE')
      expect(stderr, file).not.toContain('can be reached')
      writeFileSync(file, bytes)
    }
  })

  test('each error of SQLite is recognized by its message if the driver leaves out the code', () => {
    const reasons = {
      'database disk image is malformed': 'damaged',
      'file is not a database': 'damaged',
      'no such table: entry': 'damaged',
      'UNIQUE constraint failed: entry.idx': 'damaged',
      'database or disk is full': 'full',
      'disk I/O error': 'io',
      'attempt to write a readonly database': 'readonly',
      'unable to open database file': 'permission',
    }
    for (const [words, reason] of Object.entries(reasons))
      expect(fileError(new Error(words), '/p'), words).toMatchObject({ reason, facts: { path: '/p' } })
    for (const words of ['database is locked', 'database table is locked: entry', 'locking protocol'])
      expect(isBusy(new Error(words)), words).toBe(true)
    expect(isBusy(new Error('database disk image is malformed'))).toBe(false)
    expect(fileError(new Error('who knows'), '/p').reason).toBe('failed')
  })
})

test('a new log contains its application id from the first write on, even if the machine crashes at once', async () => {
  using folder = new Folder()
  const path = await folder.crashed('made', 0)
  expect(readFileSync(path).subarray(68, 72).toString()).toBe('Leas')
  await using store = new FileStore({ path })
  expect((await store.open()).head).toEqual(START)
})

test('a log that crashed opens as usual, and the inspection leaves no files behind', async () => {
  using folder = new Folder()
  const path = await folder.crashed('made', 30)
  const before = new Set(folder.files(path))
  {
    await using store = new FileStore({ path })
    expect((await store.open()).head.index).toBe(30)
  }
  expect(folder.files(path).filter(file => !before.has(file))).toEqual([])
  await using replica = await Replica.open(new FileStore({ path: folder.place('other') }), { owned: false })
  expect(replica.signal.aborted).toBe(false)
})

// ---------------------------------------------------------------------------------------------------------------------------

class Folder implements Disposable {
  readonly name = mkdtempSync(join(tmpdir(), 'leasehold-refusal-'))

  /** A path for a log, in its own folder. */
  place(name: string): string {
    mkdirSync(join(this.name, name))
    return join(this.name, name, 'log.db')
  }

  async closed(name: string, records: number): Promise<string> {
    const path = this.place(name)
    await fill(path, records)
    return path
  }

  /** The files as a crash of the machine leaves them. */
  async crashed(name: string, records: number): Promise<string> {
    const [path, copy] = [this.place(`${name}-live`), this.place(name)]
    await fill(path, records, () => this.copy(path, copy, ['', '-log', '-head', '-owner']))
    return copy
  }

  copy(from: string, to: string, sides: readonly string[]): void {
    for (const side of sides) if (existsSync(`${from}${side}`)) execFileSync('cp', ['-rp', `${from}${side}`, `${to}${side}`])
  }

  files(path: string): string[] {
    return readdirSync(join(path, '..'), { recursive: true, encoding: 'utf8' }).toSorted()
  }

  contents(path: string): Record<string, string> {
    const bytes = (file: string) => (statSync(file).isFile() ? readFileSync(file).toString('base64') : 'a folder')
    return Object.fromEntries(this.files(path).map(file => [file, bytes(join(path, '..', file))]))
  }

  /** The error of opening the log, after checking that nothing in its folder has changed. */
  async refused(path: string): Promise<LeaseError> {
    const before = this.contents(path)
    const errors = []
    for (const own of [undefined, { name: 'owner' }]) {
      const store = new FileStore({ path, ...(own && { own }) })
      const error = await store.open().catch(error => error)
      await store[Symbol.asyncDispose]()
      expect(error).toBeInstanceOf(LeaseError)
      const after = this.contents(path)
      expect(Object.keys(after)).toEqual(Object.keys(before))
      for (const file of Object.keys(after)) expect(after[file] === before[file], `${file} is as it was`).toBe(true)
      errors.push(error)
    }
    return errors[0]
  }

  [Symbol.dispose](): void {
    rmSync(this.name, { recursive: true })
  }
}

async function fill(path: string, records: number, then: () => void = () => {}): Promise<void> {
  await using store = new FileStore({ path })
  let { head } = await store.open()
  for (let i = 1; i <= records; i++) {
    const answer = await store.append(new Uint8Array(400).fill(i), head)
    if (answer.kind === 'appended') head = answer.position
  }
  await store.read(head) // the last position is written after the answer
  then()
}

function segmentOf(path: string): string {
  return `${path}-log/0000000000000001.log`
}
