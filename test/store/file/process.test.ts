import assert from 'node:assert/strict'
import { type ChildProcess, fork, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, statSync } from 'node:fs'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { LeaseError } from '../../../src/errors.ts'
import type { Command } from '../../../src/kernel/command.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { Replica } from '../../../src/replica/replica.ts'
import { FileStore, type FileStoreOptions } from '../../../src/store/file/file.ts'
import { type Position, START, type Store } from '../../../src/store.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'

describe('several processes on one file', () => {
  test('each record that one process appends is read by another that waits for it', async () => {
    await using folder = await Folder.make()
    await using child = new Child()
    await using store = await folder.open()
    await child.ask('open', { path: folder.path })
    let after = START
    for (let i = 0; i < 25; i++) {
      const seen = child.ask<readonly string[]>('next')
      after = await append(store, `${i}`, after)
      expect(await seen).toEqual([`${i}`])
    }
  })

  test('after kill -9 of an owner the next one opens at once, and no acknowledged record is missing', async () => {
    await using folder = await Folder.make()
    for (const [round, name] of ['alpha', 'beta', 'gamma'].entries()) {
      await using child = new Child()
      const from = await child.ask<Position>('open', { path: folder.path, own: { name } })
      let last: Position | undefined
      const enough = new Promise<void>(resolve => {
        child.process.on('message', ([what, count, position]: [string, number, Position]) => {
          if (what !== 'acknowledged') return
          last = position
          if (count === 50 + round * 37) resolve()
        })
      })
      child.ask('pour').catch(() => {})
      await enough
      await child.kill()
      await using next = new FileStore({ path: folder.path, own: { name: 'next' } })
      const { head } = await next.open()
      expect(head.index).toBeGreaterThanOrEqual(last!.index)
      const read = await next.read(from)
      expect(read.kind === 'records' && read.records.map(({ bytes }) => new TextDecoder().decode(bytes))).toEqual(
        Array.from({ length: head.index - from.index }, (_, i) => `${i + 1}`),
      )
      expect(read.kind === 'records' && read.records[last!.index - from.index - 1]?.position).toEqual(last)
    }
  })

  test('a process that exits while it reads ends with its exit code', async () => {
    await using folder = await Folder.make()
    // An earlier version ended with SIGABRT in half of these runs.
    for (let exit = 0; exit < 12; exit++) {
      await using child = new Child()
      await child.ask('open', { path: folder.path })
      if (exit === 0) for (let i = 0; i < 20; i++) await child.ask('append', 'x'.repeat(200_000))
      const ended = once(child.process, 'exit')
      child.ask('exitReading', exit).catch(() => {})
      expect(await ended).toEqual([exit, null])
    }
  })

  test('the error for a second owner or a shared user names the owner, its process, host and address', async () => {
    await using folder = await Folder.make()
    await using child = new Child()
    await child.ask('open', { path: folder.path, own: { name: 'alpha' } })
    for (const own of [{ own: { name: 'beta' } }, {}]) {
      const bare = await refused(folder.path, own)
      expect(bare.message).toContain(`owned by alpha (process ${child.pid}`)
      expect(bare.message).toContain(hostname())
      expect(bare.message).toMatch(/since \d{4}-\d\d-\d\d .*stop it first/)
      expect(bare).toMatchObject({ reason: 'owned', facts: { owner: child.pid, name: 'alpha' } })
      expect(bare.facts).not.toHaveProperty('address')
    }
    await child.ask('announce', 'leasehold://127.0.0.1:7420')
    const error = await refused(folder.path)
    expect(error.facts).toMatchObject({ owner: child.pid, address: 'leasehold://127.0.0.1:7420' })
    expect(error.message).toContain('serves it at leasehold://127.0.0.1:7420: connect there')
    await child.stop()
    expect((await refused(folder.path)).message).toContain(`kill -CONT ${child.pid}`)
    child.process.kill('SIGCONT')
  })

  test('a file in shared use cannot be owned, and the error names its users until they have ended', async () => {
    await using folder = await Folder.make()
    await using one = new Child()
    await using two = new Child()
    for (const child of [one, two]) await child.ask('open', { path: folder.path })
    const error = await refused(folder.path, { own: { name: 'alpha' } })
    expect(error).toMatchObject({ reason: 'used' })
    expect(error.facts.users).toEqual([one.pid, two.pid])
    expect(error.message).toContain(`process ${one.pid}`)
    await one.kill()
    expect((await refused(folder.path, { own: { name: 'alpha' } })).facts.users).toEqual([two.pid])
    await two.kill()
    await using owner = await folder.open({ own: { name: 'alpha' } })
    await append(owner, 'mine', START)
  })

  test('a store that was refused can be opened after the owner has ended', async () => {
    await using folder = await Folder.make()
    await using child = new Child()
    await child.ask('open', { path: folder.path, own: { name: 'alpha' } })
    await using store = new FileStore({ path: folder.path })
    await expect(store.open()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await child.kill()
    await store.open()
    await append(store, 'a', START)
  })

  test('an append that times out behind a process stopped in the middle of an append names that process, and has no effect', async () => {
    await using folder = await Folder.make()
    await using child = new Child()
    await using store = await folder.open({ timeout: 300 })
    const after = await append(store, 'a', START)
    await child.ask('beginTransaction', folder.path)
    await child.stop()
    const error: LeaseError = await store.append(Uint8Array.of(1), after).then(
      () => expect.fail('appended'),
      error => error,
    )
    expect(error).toMatchObject({ code: 'UNAVAILABLE', reason: 'stopped', facts: { pid: child.pid } })
    expect(error.message).toMatch(
      new RegExp(`process ${child.pid} \\(.*node.* is stopped in the middle of an append.*kill -CONT ${child.pid}`),
    )
    expect(await store.read(after)).toEqual({ kind: 'records', records: [] }) // reads work meanwhile
    child.process.kill('SIGCONT')
    await child.ask('endTransaction')
    expect(await store.append(Uint8Array.of(1), after)).toMatchObject({ kind: 'appended', missed: [] })
  })

  test('of two stopped processes the one that appends is named; one that reads delays no append, and an open that has to wait for it names it', async () => {
    await using folder = await Folder.make()
    await using writer = new Child()
    await using reader = new Child()
    await using store = await folder.open({ timeout: 300 })
    const after = await append(store, 'a', START)
    await reader.ask('hold', folder.path, 'begin; select * from state')
    await writer.ask('beginTransaction', folder.path)
    for (const child of [reader, writer]) await child.stop()
    const blamed = { code: 'UNAVAILABLE', reason: 'stopped', facts: { pid: writer.pid } }
    await expect(store.append(Uint8Array.of(1), after)).rejects.toMatchObject(blamed)
    expect(await refused(folder.path, { timeout: 300 })).toMatchObject(blamed)
    writer.process.kill('SIGCONT')
    await writer.ask('endTransaction')
    const next = await append(store, 'b', after)
    expect(await store.snapshot(next, one(Uint8Array.of(7)))).toBe('kept')
    const reading = { code: 'UNAVAILABLE', reason: 'stopped', facts: { pid: reader.pid } }
    expect(await refused(folder.path, { timeout: 300 })).toMatchObject(reading)
    reader.process.kill('SIGCONT')
    await reader.ask('endTransaction')
    await using late = await folder.open()
    expect(await late.read(after)).toMatchObject({ records: [{ position: next }] })
  })

  test('an append waits for a slow transaction of another process', async () => {
    await using folder = await Folder.make()
    await using child = new Child()
    await using store = await folder.open()
    await child.ask('beginTransaction', folder.path)
    const appending = append(store, 'a', START)
    await store.read(START)
    await child.ask('endTransaction')
    expect((await appending).index).toBe(1)
  })

  test('an owner answers renewals while an append waits for the disk', async () => {
    await using folder = await Folder.make()
    await using child = new Child()
    await using replica = await Replica.open(new FileStore({ path: folder.path, own: { name: 'a' } }), { owned: true })
    const acquire = (resource: string): Command => ({ kind: 'acquire', holder: 'a', ttl: 60_000, wants: [{ resource }] })
    const granted = await propose(replica, acquire('one'))
    assert(granted.kind === 'granted')
    const renew = () => propose(replica, { kind: 'renew', leases: [granted.lease] })
    await renew() // the first renewal is written
    for (let i = 0; i < 20; i++) await propose(replica, acquire(`quick/${i}`)) // until appends take the short way
    await child.ask('beginTransaction', folder.path, EVENT_TIMEOUT) // the owner gives up the lock when it rests
    let isGranted = false
    const slow = propose(replica, acquire('two')).then(outcome => {
      isGranted = true
      return outcome
    })
    for (let i = 0; i < 50; i++) expect(await renew()).toMatchObject({ kind: 'renewed', ttls: [60_000] })
    expect(isGranted).toBe(false)
    await child.ask('endTransaction')
    expect(await slow).toMatchObject({ kind: 'granted' })
  })

  test('an idle store does not keep its process alive; a pending append does until it is answered', async () => {
    await using folder = await Folder.make()
    await using child = new Child()
    await child.ask('open', { path: folder.path })
    const output: Buffer[] = []
    child.process.stdout!.on('data', chunk => output.push(chunk))
    const exited = once(child.process, 'close')
    child.ask('leave').catch(() => {})
    expect((await exited)[0]).toBe(0)
    expect(Buffer.concat(output).toString()).toBe('answered')
    await using store = await folder.open()
    expect(await store.read(START)).toMatchObject({ records: [{ position: { index: 1 } }] })
  })

  test('an append that waits for another process keeps its process alive', async () => {
    await using folder = await Folder.make()
    await using other = new Child()
    await using child = new Child()
    await child.ask('open', { path: folder.path, timeout: 300 })
    await other.ask('beginTransaction', folder.path)
    const output: Buffer[] = []
    child.process.stdout!.on('data', chunk => output.push(chunk))
    const exited = once(child.process, 'close')
    child.ask('leave').catch(() => {})
    expect((await exited)[0]).toBe(0)
    expect(Buffer.concat(output).toString()).toBe('busy')
  })

  test('what a killed process was writing is removed when the log is opened, and what a living one writes is not', async () => {
    await using folder = await Folder.make()
    await using child = new Child()
    await child.ask('open', { path: folder.path })
    await child.ask('append', 'a')
    const half = once(child.process, 'message')
    child.ask('beginSnapshot').catch(() => {})
    await half
    const temporary = async () => (await readdir(`${folder.path}-log`)).filter(name => name.endsWith('.part'))
    expect(await temporary()).toHaveLength(1)
    {
      await using meanwhile = await folder.open()
      expect(await meanwhile.newest()).toBeUndefined()
      expect(await temporary()).toHaveLength(1)
    }
    await child.kill()
    await using store = await folder.open()
    expect(await store.newest()).toBeUndefined()
    expect(await temporary()).toEqual([])
    const read = await store.read(START)
    const at = read.kind === 'records' ? read.records[0]!.position : START
    expect(await store.snapshot(at, one(Uint8Array.of(7)))).toBe('kept')
  })

  whereAble(
    '-T',
    '--monotonic',
    '1000',
  )('ages are not compared across time namespaces, in either direction', async () => {
    await using folder = await Folder.make()
    await using store = await folder.open()
    const after = await append(store, 'here', START)
    await using ahead = new Child(['unshare', '-T', '--monotonic', '1000', '--boottime', '1000'])
    await using behind = new Child(['unshare', '-T', '--monotonic', '-20', '--boottime', '-20'])
    await using same = new Child(['unshare', '-T'])
    for (const child of [ahead, behind, same]) await child.ask('open', { path: folder.path })
    await append(store, 'later', after)
    await ahead.ask('append', 'ahead')
    const [there, early, alike] = await Promise.all([ahead, behind, same].map(child => child.ask<number[]>('ages')))
    expect([there![0], there![1], there![2]! >= 0]).toEqual([0, 0, true])
    expect([early![0], early![1], early![2]]).toEqual([0, 0, 0])
    expect([alike![0]! > 0, alike![2]]).toEqual([true, 0])
    const read = await store.read(START)
    if (read.kind !== 'records') expect.fail(read.kind)
    expect([read.records[0]!.age > 0, read.records[2]!.age]).toEqual([true, 0])
    expect(there![2]).toBeLessThan(60_000)
  })

  whereAble(
    '-p',
    '-f',
    '--mount-proc',
  )('a process in another pid namespace deletes nothing of processes that it cannot see', async () => {
    await using folder = await Folder.make()
    await using store = await folder.open()
    const at = await append(store, 'b', await append(store, 'a', START))
    await using other = new Child(['unshare', '-p', '-f', '--mount-proc'])
    async function* bytes(): AsyncGenerator<Uint8Array> {
      yield new Uint8Array(300_000).fill(1)
      // Meanwhile another process opens the log, and saves a snapshot of an earlier position.
      await other.ask('keepFirst', folder.path)
      yield new Uint8Array(300_000).fill(2)
    }
    expect(await store.snapshot(at, bytes())).toBe('kept')
    await store[Symbol.asyncDispose]()
    await using later = await folder.open()
    expect((await later.newest())?.position).toEqual(at)
  })

  test('a snapshot whose file was deleted while it was written is not put in force, and the log stays intact', async () => {
    await using folder = await Folder.make()
    await using store = await folder.open()
    const at = await append(store, 'a', START)
    async function* bytes(): AsyncGenerator<Uint8Array> {
      yield new Uint8Array(300_000).fill(1)
      for (const name of await readdir(`${folder.path}-log`)) if (name.endsWith('.part')) await rm(join(`${folder.path}-log`, name))
    }
    await expect(store.snapshot(at, bytes())).rejects.toMatchObject({ code: 'UNKNOWN', reason: 'permission' })
    await append(store, 'b', at)
    await store[Symbol.asyncDispose]()
    await using later = await folder.open()
    expect(await later.newest()).toBeUndefined()
    expect(await later.read(START)).toMatchObject({ records: [{}, {}] })
  })

  test('only the user of the process can access the files, and a folder created for them', async () => {
    await using folder = await Folder.make()
    const path = join(folder.name, 'state', 'leasehold', 'log.db')
    await using store = new FileStore({ path })
    await store.open()
    await store.snapshot(await append(store, 'a', START), one(Uint8Array.of(7)))
    for (const made of [join(folder.name, 'state'), join(folder.name, 'state', 'leasehold')]) expect(mode(made)).toBe('700')
    const whole = async () => {
      const files = await readdir(join(folder.name, 'state', 'leasehold'))
      expect(files.toSorted()).toEqual(['log.db', 'log.db-head', 'log.db-log', 'log.db-owner'])
      for (const file of files)
        expect(mode(join(folder.name, 'state', 'leasehold', file)), file).toBe(file === 'log.db-log' ? '700' : '600')
      const kept = await readdir(`${path}-log`)
      expect(kept.map(file => file.replace(/.*[.]/, '')).toSorted()).toEqual(['log', 'snapshot'])
      for (const file of kept) expect(mode(join(`${path}-log`, file)), file).toBe('600')
    }
    await whole()
    await store[Symbol.asyncDispose]()
    await using owner = new FileStore({ path, own: { name: 'owner' } })
    await owner.open()
    await whole()
  })

  test('the users of a file that is deleted or replaced while open report DIVERGED', async () => {
    await using folder = await Folder.make()
    await using store = await folder.open()
    const after = await append(store, 'a', START)
    const waiting = store.read(after, { wait: new AbortController().signal })
    for (const file of await readdir(folder.name)) await rm(join(folder.name, file), { recursive: true })
    expect(await waiting).toMatchObject({ kind: 'diverged', reason: expect.stringContaining('removed or replaced') })
    expect(await store.append(Uint8Array.of(2), after)).toMatchObject({ kind: 'diverged' })
    await using other = await folder.open()
    await append(other, 'b', START)
    expect(await store.append(Uint8Array.of(2), after)).toMatchObject({ kind: 'diverged' })
  })
})

// ---------------------------------------------------------------------------------------------------------------------------

/** A separate folder with a log in it. */
class Folder implements AsyncDisposable {
  readonly name: string
  readonly path: string

  private constructor(name: string) {
    this.name = name
    this.path = join(name, 'log.db')
  }

  static async make(): Promise<Folder> {
    return new Folder(await mkdtemp(join(tmpdir(), 'leasehold-process-')))
  }

  async open(options: Omit<FileStoreOptions, 'path'> = {}): Promise<FileStore> {
    const store = new FileStore({ path: this.path, ...options })
    await store.open()
    return store
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.name, { recursive: true })
  }
}

/** Another process that executes commands. See `file-child.mjs`. */
class Child implements AsyncDisposable {
  readonly process: ChildProcess
  readonly #asked = new Map<number, { resolve: (value: never) => void; reject: (error: unknown) => void }>()
  #id = 0

  /** `under`: a command that runs the process in its own namespace. */
  constructor([command, ...args]: readonly string[] = []) {
    const file = fileURLToPath(new URL('../../support/file-child.mjs', import.meta.url))
    const world = command === undefined ? { execArgv: [] } : { execPath: command, execArgv: [...args, process.execPath] }
    this.process = fork(file, { serialization: 'advanced', stdio: ['ignore', 'pipe', 'inherit', 'ipc'], ...world })
    this.process.on('message', ([id, done, value]: [number, boolean, never]) => {
      const asked = this.#asked.get(id)
      this.#asked.delete(id)
      if (done) asked?.resolve(value)
      else asked?.reject(value)
    })
  }

  get pid(): number {
    return this.process.pid!
  }

  ask<T>(call: string, ...args: unknown[]): Promise<T> {
    return new Promise((resolve, reject) => {
      const id = ++this.#id
      this.#asked.set(id, { resolve, reject })
      this.process.send([id, call, ...args])
    })
  }

  /** On a busy machine a signal takes effect late. */
  async stop(): Promise<void> {
    this.process.kill('SIGSTOP')
    await expect.poll(() => readFileSync(`/proc/${this.pid}/stat`, 'latin1')).toMatch(/^\d+ \(.*\) T/)
  }

  async kill(): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return
    const gone = once(this.process, 'exit')
    this.process.kill('SIGKILL')
    await gone
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill()
  }
}

async function refused(path: string, options: Omit<FileStoreOptions, 'path'> = {}): Promise<LeaseError> {
  await using store = new FileStore({ path, ...options })
  const error = await store.open().then(
    () => expect.fail('opened'),
    error => error,
  )
  expect(error).toBeInstanceOf(LeaseError)
  expect(error.code).toBe('UNAVAILABLE')
  return error
}

async function append(store: Store, text: string, after: Position): Promise<Position> {
  const answer = await store.append(new TextEncoder().encode(text), after)
  if (answer.kind !== 'appended') expect.fail(answer.kind)
  return answer.position
}

async function* one(chunk: Uint8Array): AsyncGenerator<Uint8Array> {
  yield chunk
}

function mode(path: string): string {
  return (statSync(path).mode & 0o777).toString(8)
}

/** Skips a test, and says so, if this process may not create such a namespace. */
function whereAble(...args: string[]): typeof test | typeof test.skip {
  const able = spawnSync('unshare', ['--version']).status === 0 && spawnSync('unshare', [...args, 'true']).status === 0
  if (!able) console.warn(`SKIPPED: unshare ${args.join(' ')} is not possible here`)
  return able ? test : test.skip
}
