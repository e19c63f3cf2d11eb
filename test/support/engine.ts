/**
 * Real engines for tests: Redis, Postgres, etcd and a three-node etcd, each on free loopback ports in a folder of its own.
 *
 * Not guaranteed: that an engine is available. If its program is missing and cannot be installed (on Debian, as root), `engine` throws
 * `EngineUnavailable`, and `describeEngine` skips with a warning, or fails if CI=true.
 *
 * Processes are signalled by their ids only. They end with the test process, however that ends.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, existsSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { chown, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { describe, test } from 'vitest'
import { etcd as etcdModule } from '../../src/store/etcd/module.ts'
import { postgres as postgresModule } from '../../src/store/postgres/module.ts'
import { redis as redisModule } from '../../src/store/redis/module.ts'
import { EVENT_TIMEOUT } from './bounds.ts'
import { folderLock } from './folder-lock.ts'

export type Kind = 'redis' | 'postgres' | 'etcd' | 'etcd3'

export interface Options {
  /** Added after our own arguments, so they take precedence if the engine uses the last one. */
  readonly args?: readonly string[]
  /** Added to our own environment. */
  readonly env?: Readonly<Record<string, string>>
  /** Postgres: start as a standby of the server on this port. */
  readonly standbyOf?: number
}

/** One process of an engine. Every kind but `etcd3` has just one. */
export interface Member {
  readonly port: number
  /** Changes with every restart. A stopped member keeps its last one. */
  readonly pid: number
  readonly running: boolean
  /** The file that receives its output. */
  readonly log: string
  /** Stops the process as an operator would, or with `signal`, and waits until it has exited. */
  stop(signal?: NodeJS.Signals): Promise<void>
  /** Kills the process and all its children at once, as a crash does. */
  kill9(): Promise<void>
  /** SIGSTOP: connections stay open, but the process does not answer. */
  pause(): void
  resume(): void
  /** Stops the process if it runs, and starts it with the same data and port. Does not wait until it answers: see `Engine.ready`. */
  restart(): Promise<void>
}

export interface Engine extends AsyncDisposable {
  readonly kind: Kind
  readonly url: string
  readonly members: readonly Member[]
  readonly port: number
  readonly ports: readonly number[]
  readonly pid: number
  readonly pids: readonly number[]
  /** These act on every member. `restart` returns when all of them answer. */
  stop(signal?: NodeJS.Signals): Promise<void>
  kill9(): Promise<void>
  pause(): void
  resume(): void
  restart(): Promise<void>
  /** Waits until every running member answers. */
  ready(): Promise<void>
}

export class EngineUnavailable extends Error {
  override readonly name = 'EngineUnavailable'
  readonly kind: string
  readonly reason: string

  constructor(kind: string, reason: string) {
    super(`no ${kind} here: ${reason}`)
    this.kind = kind
    this.reason = reason
  }
}

/** Starts an engine and waits until it answers. Leaving the block stops it and removes its folder. */
export async function engine(kind: Kind, { args = [], env = {}, standbyOf }: Options = {}): Promise<Engine> {
  await Promise.all(neededBy(kind).map(provide))
  // Another process may take a free port before the engine does. Then the engine does not start, and other ports are tried.
  for (let attempt = 1; ; attempt++) {
    const started = await launch(kind, args, env, standbyOf)
    try {
      await started.ready()
      return started
    } catch (error) {
      await started[Symbol.asyncDispose]()
      if (attempt === 3) throw error
    }
  }
}

/** A `describe` for tests on a real engine, which is installed first if it is missing. */
export function describeEngine(kind: Kind, name: string, define: () => void | Promise<void>): void {
  describeWith(neededBy(kind), `${name} (${kind})`, define)
}

/** A program that tests need, or a file of it, and the Debian packages that contain it. */
export interface Needed {
  readonly program: string
  readonly packages: readonly string[]
}

/**
 * Every program that tests call and that some machines lack. Each is looked up separately: a machine may have one program of a package and
 * not another, or the packages of another distribution. test/project/programs.test.ts finds calls of programs that are not looked up.
 */
export const programs = {
  'redis-cli': { program: 'redis-cli', packages: ['redis-tools'] },
  'redis-benchmark': { program: 'redis-benchmark', packages: ['redis-tools'] },
  etcdctl: { program: 'etcdctl', packages: ['etcd-client'] },
  openssl: { program: 'openssl', packages: ['openssl'] },
  curl: { program: 'curl', packages: ['curl'] },
  python3: { program: 'python3', packages: ['python3'] },
  setpriv: { program: 'setpriv', packages: ['util-linux'] },
  zsh: { program: 'zsh', packages: ['zsh'] },
  fish: { program: 'fish', packages: ['fish'] },
  groff: { program: 'groff', packages: ['groff-base'] },
  prometheus: { program: 'prometheus', packages: ['prometheus'] },
  promtool: { program: 'promtool', packages: ['prometheus'] },
  'systemd-analyze': { program: 'systemd-analyze', packages: ['systemd'] },
  chromium: { program: 'chromium', packages: ['chromium'] },
  dig: { program: 'dig', packages: ['bind9-dnsutils'] },
  faketime: { program: 'faketime', packages: ['faketime'] },
  pgbouncer: { program: 'pgbouncer', packages: ['pgbouncer'] },
} as const satisfies Record<string, Needed>

/** As `describeEngine`, for tests that need other programs as well. */
export function describePrograms(kind: Kind, others: readonly Needed[], name: string, define: () => void | Promise<void>): void {
  describeWith([...neededBy(kind), ...others], `${name} (${kind})`, define)
}

/** As `describeEngine`, for programs alone. */
export function describeWith(needed: readonly Needed[], name: string, define: () => void | Promise<void>): void {
  describe(name, async () => {
    const missing = await Promise.all(needed.map(provide)).then(
      () => undefined,
      (error: unknown) => error,
    )
    if (missing === undefined) return define()
    if (!(missing instanceof EngineUnavailable)) throw missing
    console.warn(`NOT TESTED: ${name}: ${missing.message}`) // a skipped test alone is easily overlooked in a long report
    test(`SKIPPED, NOT TESTED: ${missing.message}`, context => {
      if (process.env.CI === 'true') throw missing
      context.skip(missing.message)
    })
  })
}

// ---------------------------------------------------------------------------------------------------------------------------
// Differences between the kinds.

interface Recipe extends Needed {
  /** Other programs, which prepare the engine. */
  readonly beside?: readonly string[]
  readonly size: number
  /** The signals for a normal stop, and for a fast stop when its data is no longer needed. */
  readonly stopSignal: NodeJS.Signals
  readonly fastStopSignal: NodeJS.Signals
  /** It has this many ms to stop before it is killed. */
  readonly timeout: number
  /** Postgres refuses to run as root. */
  readonly unprivileged?: true
  url(ports: readonly number[]): string
  prepare?(folder: string, user: User | undefined, standbyOf: number | undefined): Promise<void>
  command(member: {
    readonly index: number
    readonly folder: string
    readonly ports: readonly number[]
    readonly peers: readonly number[]
  }): string[]
  answers(port: number): Promise<boolean>
}

const etcd: Omit<Recipe, 'size'> = {
  ...etcdModule.server!,
  stopSignal: 'SIGTERM',
  fastStopSignal: 'SIGKILL',
  timeout: 2000, // a leader tries to hand over for 7 s, even if all others are stopping too
  url: ports => `etcd://${ports.map(port => `127.0.0.1:${port}`).join(',')}`,
  command: ({ index, folder, ports, peers }) => [
    ...['etcd', '--name', `m${index}`, '--data-dir', join(folder, `m${index}`), '--enable-v2=false', '--logger=zap'],
    ...['--listen-client-urls', http(ports[index]!), '--advertise-client-urls', http(ports[index]!)],
    ...['--listen-peer-urls', http(peers[index]!), '--initial-advertise-peer-urls', http(peers[index]!)],
    ...['--initial-cluster', peers.map((peer, n) => `m${n}=${http(peer)}`).join(','), '--initial-cluster-token', folder],
  ],
  async answers(port) {
    // Healthy is more than listening: the cluster has a leader.
    const response = await fetch(`${http(port)}/health`, { signal: AbortSignal.timeout(1000) })
    return ((await response.json()) as { health?: string }).health === 'true'
  },
}

const recipes: Record<Kind, Recipe> = {
  redis: {
    ...redisModule.server!,
    size: 1,
    stopSignal: 'SIGTERM',
    fastStopSignal: 'SIGKILL',
    timeout: 10_000,
    url: ([port]) => `redis://127.0.0.1:${port}`,
    command: ({ folder, ports }) => [
      ...[find('redis-server')!, '--bind', '127.0.0.1', '--port', String(ports[0]), '--dir', folder],
      ...['--appendonly', 'yes', '--appendfsync', 'always', '--save', ''],
    ],
    answers: port => exchange(port, 'PING\r\n', '+PONG'),
  },
  postgres: {
    ...postgresModule.server!,
    beside: ['initdb', 'pg_basebackup'],
    size: 1,
    stopSignal: 'SIGINT', // its fast shutdown; SIGTERM would wait for every client to disconnect
    fastStopSignal: 'SIGQUIT', // its immediate shutdown; after SIGKILL it leaves shared memory behind
    timeout: 10_000,
    unprivileged: true,
    url: ([port]) => `postgres://postgres@127.0.0.1:${port}/postgres`,
    async prepare(folder, user, standbyOf) {
      const data = join(folder, 'data')
      if (standbyOf === undefined) return succeed('cp', ['-a', await emptyPostgres(user), data], { cwd: folder, user })
      const args = ['-D', data, '-U', 'postgres', '--no-sync', '-R', '-c', 'fast', '-h', '127.0.0.1', '-p', String(standbyOf)]
      await succeed(find('pg_basebackup')!, args, { cwd: folder, user })
    },
    command: ({ folder, ports }) => [
      ...[find('postgres')!, '-D', join(folder, 'data'), '-p', String(ports[0])],
      ...['-c', 'listen_addresses=127.0.0.1', '-c', 'unix_socket_directories=', '-c', 'shared_buffers=32MB'],
    ],
    async answers(port) {
      const client = new pg.Client({ host: '127.0.0.1', port, user: 'postgres', database: 'postgres', connectionTimeoutMillis: 1000 })
      client.on('error', () => {}) // the server may stop again meanwhile: then the query fails
      try {
        await client.connect()
        return (await client.query('select 1')).rowCount === 1
      } finally {
        void client.end().catch(() => {})
      }
    },
  },
  etcd: { ...etcd, size: 1 },
  etcd3: { ...etcd, size: 3 },
}

/** The servers that can be started here. */
export const engineServers: Readonly<Record<Kind, Needed>> = recipes

function neededBy(kind: Kind): readonly Needed[] {
  const { program, packages, beside = [] } = recipes[kind]
  return [program, ...beside].map(name => ({ program: name, packages }))
}

function http(port: number): string {
  return `http://127.0.0.1:${port}`
}

/** Sends one line and returns whether the answer starts as expected. */
async function exchange(port: number, line: string, expected: string): Promise<boolean> {
  const socket = connect({ host: '127.0.0.1', port, timeout: 1000 })
  socket.on('timeout', () => socket.destroy(new Error(`no answer from port ${port}`)))
  try {
    await once(socket, 'connect')
    socket.write(line)
    const [answer] = (await once(socket, 'data')) as [Buffer]
    return answer.toString().startsWith(expected)
  } finally {
    socket.destroy()
  }
}

// ---------------------------------------------------------------------------------------------------------------------------
// Running.

/** The data of a new Postgres, made once for each version and user of this machine and copied for each engine: `initdb` takes seconds of a core. */
async function emptyPostgres(user: User | undefined): Promise<string> {
  const initdb = find('initdb')!
  const folder = join(tmpdir(), `leasehold-initdb-${user?.uid ?? process.getuid?.()}-${initdb.replace(/\W+/g, '-')}`)
  const data = join(folder, 'data')
  const marker = join(folder, 'complete')
  if (existsSync(marker)) return data
  await using _lock = await folderLock(`${folder}.lock`)
  if (existsSync(marker)) return data
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder)
  if (user) await chown(folder, user.uid, user.gid)
  const args = ['-D', data, '-U', 'postgres', '--no-sync', '-A', 'trust', '-E', 'UTF8', '--locale=C']
  await succeed(initdb, args, { cwd: folder, user })
  await writeFile(marker, '')
  return data
}

/** Limited, so that an engine that never starts is reported with its log, and does not block the test. */
const READY_WITHIN = EVENT_TIMEOUT

/** Processes and folders that must not outlive this process. */
const alive = new Set<{ readonly pid: number; readonly fastStopSignal: NodeJS.Signals }>()
const folders = new Set<string>()
process.on('exit', () => {
  for (const { pid, fastStopSignal } of alive) send(pid, fastStopSignal)
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

class Process implements Member {
  readonly port: number
  readonly log: string
  readonly #recipe: Recipe
  readonly #command: readonly string[]
  readonly #folder: string
  readonly #user: User | undefined
  readonly #env: NonNullable<Options['env']>
  #child: ChildProcess | undefined
  #registered: { pid: number; fastStopSignal: NodeJS.Signals } | undefined

  constructor(
    recipe: Recipe,
    port: number,
    command: readonly string[],
    folder: string,
    log: string,
    user: User | undefined,
    env: NonNullable<Options['env']>,
  ) {
    this.port = port
    this.#env = env
    this.log = log
    this.#recipe = recipe
    this.#command = command
    this.#folder = folder
    this.#user = user
  }

  get pid(): number {
    return this.#registered?.pid ?? 0
  }

  get running(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null
  }

  async start(): Promise<void> {
    const log = openSync(this.log, 'a')
    try {
      // A killed test worker runs no exit handler. So the system ends the engine when its parent ends.
      const endWithParent = find('setpriv') ? ['setpriv', '--pdeathsig', this.#recipe.fastStopSignal.slice(3), '--'] : []
      const [program, ...args] = [...endWithParent, ...this.#command]
      const env = { ...process.env, ...this.#env }
      const child = spawn(program!, args, { cwd: this.#folder, env, stdio: ['ignore', log, log], ...identity(this.#user) })
      await once(child, 'spawn')
      const registered = { pid: child.pid!, fastStopSignal: this.#recipe.fastStopSignal }
      alive.add(registered)
      child.once('exit', () => alive.delete(registered))
      this.#child = child
      this.#registered = registered
    } finally {
      closeSync(log)
    }
  }

  async stop(signal: NodeJS.Signals = this.#recipe.stopSignal): Promise<void> {
    const child = this.#child
    if (child === undefined || !this.running) return
    const gone = once(child, 'exit')
    this.resume() // a stopped process would not receive the signal
    send(this.pid, signal)
    const timeout = setTimeout(() => this.#signalAll('SIGKILL'), this.#recipe.timeout)
    await gone
    clearTimeout(timeout)
  }

  async kill9(): Promise<void> {
    const child = this.#child
    if (child === undefined || !this.running) return
    const gone = once(child, 'exit')
    // Stop the process first, so that it starts no child that is overlooked: a child that outlives it would block the next start.
    const { pid } = this
    send(pid, 'SIGSTOP')
    for (let i = 0; i < 200 && !isStopped(pid); i++) await sleep(5)
    const all = [pid, ...descendants(pid)]
    for (const each of all) send(each, 'SIGKILL')
    await gone
    for (let i = 0; i < 1_000 && all.some(exists); i++) await sleep(5)
  }

  pause(): void {
    this.#signalAll('SIGSTOP')
    // On a busy machine the signal takes time, and the engine answers until then.
    const until = Date.now() + EVENT_TIMEOUT
    while (Date.now() < until && [this.pid, ...descendants(this.pid)].some(pid => !isStopped(pid)))
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
  }

  resume(): void {
    this.#signalAll('SIGCONT')
  }

  async restart(): Promise<void> {
    await this.stop()
    await this.start()
  }

  /** Signals the process before its children, so that it cannot start more of them meanwhile. */
  #signalAll(signal: NodeJS.Signals): void {
    if (!this.running) return
    const children = descendants(this.pid)
    send(this.pid, signal)
    for (const pid of new Set([...children, ...descendants(this.pid)])) send(pid, signal)
  }
}

async function launch(kind: Kind, args: readonly string[], env: NonNullable<Options['env']>, standbyOf?: number): Promise<Engine> {
  const recipe = recipes[kind]
  const user = recipe.unprivileged && process.getuid?.() === 0 ? unprivilegedUser() : undefined
  const folder = await mkdtemp(join(tmpdir(), `leasehold-${kind}-`))
  folders.add(folder)
  const members: Process[] = []
  const engine: Engine = {
    kind,
    members,
    get url() {
      return recipe.url(this.ports)
    },
    get port() {
      return members[0]!.port
    },
    get ports() {
      return members.map(member => member.port)
    },
    get pid() {
      return members[0]!.pid
    },
    get pids() {
      return members.map(member => member.pid)
    },
    async stop(signal) {
      await Promise.all(members.map(member => member.stop(signal)))
    },
    async kill9() {
      await Promise.all(members.map(member => member.kill9()))
    },
    pause() {
      for (const member of members) member.pause()
    },
    resume() {
      for (const member of members) member.resume()
    },
    async restart() {
      // Stop all before the first start: an etcd that starts while its peers stop spends 7 s in a retry.
      await this.stop()
      await Promise.all(members.map(member => member.start()))
      await this.ready()
    },
    async ready() {
      const until = performance.now() + READY_WITHIN
      await Promise.all(members.map(member => readyBy(kind, member, until)))
    },
    async [Symbol.asyncDispose]() {
      await this.stop(recipe.fastStopSignal)
      await rm(folder, { recursive: true, force: true, maxRetries: 5 })
      folders.delete(folder)
    },
  }
  try {
    if (user) await chown(folder, user.uid, user.gid)
    await recipe.prepare?.(folder, user, standbyOf)
    const [ports, peers] = [await freePorts(recipe.size), await freePorts(recipe.size)]
    for (const [index, port] of ports.entries()) {
      const command = [...recipe.command({ index, folder, ports, peers }), ...args]
      members.push(new Process(recipe, port, command, folder, join(folder, `log-${index}`), user, env))
    }
    await Promise.all(members.map(member => member.start()))
    return engine
  } catch (error) {
    await engine[Symbol.asyncDispose]()
    throw error
  }
}

function exists(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(')') + 2))
  } catch {
    return false
  }
}

/** Every thread of the process is stopped, or the process is gone. */
function isStopped(pid: number): boolean {
  try {
    return readdirSync(`/proc/${pid}/task`).every(thread => {
      const stat = readFileSync(`/proc/${pid}/task/${thread}/stat`, 'utf8')
      return /^[TtZX]/.test(stat.slice(stat.lastIndexOf(')') + 2))
    })
  } catch {
    return true
  }
}

async function readyBy(kind: Kind, member: Process, until: number): Promise<void> {
  let last: unknown = 'no error was reported'
  while (performance.now() < until && member.running) {
    try {
      if (await recipes[kind].answers(member.port)) return
    } catch (error) {
      last = error
    }
    await sleep(25)
  }
  const state = member.running ? `did not answer within ${READY_WITHIN} ms` : 'exited while it was starting'
  const log = await readFile(member.log, 'utf8').catch(() => '')
  throw new Error(`${kind} on port ${member.port} ${state}. End of its log:\n${log.slice(-2000)}`, { cause: last })
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch {
    // The process is gone already. Every caller wants that, or notices it by waiting.
  }
}

function descendants(pid: number): number[] {
  try {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number)
    return children.flatMap(child => [child, ...descendants(child)])
  } catch {
    return []
  }
}

/** Below the range of ports for outgoing connections: the port must still be free when the engine restarts. */
export async function freePorts(count: number): Promise<number[]> {
  const ports = new Set<number>()
  while (ports.size < count) {
    const port = 15_000 + Math.floor(Math.random() * 17_000)
    if (await isFree(port)) ports.add(port)
  }
  return [...ports]
}

function isFree(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })
}

// ---------------------------------------------------------------------------------------------------------------------------
// Installing.

const provided = new Map<string, Promise<void>>()

/** Installs the program if it is missing. At most one attempt per process. */
function provide(needed: Needed): Promise<void> {
  const { program } = needed
  let done = provided.get(program)
  if (!done) {
    done = find(program) ? Promise.resolve() : installPackages(needed)
    provided.set(program, done)
  }
  return done
}

/** Installs every program that tests may need and that is missing, at once: that is much faster than one after the other. */
export async function provideAll(): Promise<void> {
  const all: readonly Needed[] = [...Object.values(programs), ...(Object.keys(recipes) as Kind[]).flatMap(neededBy)]
  const missing = all.filter(({ program }) => find(program) === undefined)
  if (missing.length === 0) return
  const packages = new Set(missing.flatMap(needed => needed.packages))
  await installPackages({ program: missing[0]!.program, packages: [...packages] })
}

async function installPackages({ program, packages }: Needed): Promise<void> {
  if (!find('apt-get')) throw new EngineUnavailable(program, `${program} is not installed, and there is no apt-get`)
  if (process.getuid?.() !== 0)
    throw new EngineUnavailable(program, `${program} is not installed, and only root may install ${packages.join(', ')}`)
  await using _lock = await folderLock(join(tmpdir(), 'leasehold-engine-install.lock')) // two workers must not run apt at once
  if (find(program)) return // another worker has installed it
  await using _quiet = await noDaemons()
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const update = await finished('apt-get', ['update'], { env, within: 120_000 })
  const args = ['-o', 'DPkg::Lock::Timeout=120', 'install', '-y', '--no-install-recommends', ...packages]
  const install = await finished('apt-get', args, { env, within: 600_000 })
  if (find(program)) return
  throw new EngineUnavailable(program, `apt-get install ${packages.join(' ')} failed: ${(install.output || update.output).slice(-600)}`)
}

/** Debian starts a daemon for every server it installs, unless this file forbids it. An existing file is kept. */
async function noDaemons(): Promise<AsyncDisposable> {
  const policy = '/usr/sbin/policy-rc.d'
  const ours = await writeFile(policy, '#!/bin/sh\nexit 101\n', { flag: 'wx', mode: 0o755 }).then(
    () => true,
    () => false,
  )
  return {
    async [Symbol.asyncDispose]() {
      if (ours) await rm(policy, { force: true })
    },
  }
}

/** The full path of a program. Debian does not put Postgres programs into the PATH. */
export function find(program: string): string | undefined {
  const versions = '/usr/lib/postgresql'
  const postgres = existsSync(versions) ? readdirSync(versions).sort((a, b) => Number(b) - Number(a)) : []
  const places = [
    ...(process.env.ENGINES ?? '').split(delimiter).filter(place => place !== ''), // other versions, for tests by hand
    ...postgres.map(version => join(versions, version, 'bin')),
    ...(process.env.PATH ?? '').split(delimiter),
    '/usr/sbin',
    '/usr/bin',
  ]
  return places.map(place => join(place, program)).find(path => existsSync(path))
}

export interface User {
  readonly uid: number
  readonly gid: number
}

export function unprivilegedUser(): User {
  const users = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map(line => line.split(':'))
  const found = users.find(([name]) => name === 'postgres') ?? users.find(([name]) => name === 'nobody')
  if (!found) throw new Error('no unprivileged user to run Postgres as')
  return { uid: Number(found[2]), gid: Number(found[3]) }
}

function identity(user: User | undefined): { uid?: number; gid?: number } {
  return user ? { uid: user.uid, gid: user.gid } : {}
}

async function succeed(program: string, args: readonly string[], options: Parameters<typeof finished>[2]): Promise<void> {
  const { code, output } = await finished(program, args, options)
  if (code !== 0) throw new Error(`${program} failed: ${output}`)
}

/** Runs a program to its end, or for `within` ms, and returns its output. */
async function finished(
  program: string,
  args: readonly string[],
  { cwd, user, env = process.env, within = 60_000 }: { cwd?: string; user?: User | undefined; env?: NodeJS.ProcessEnv; within?: number },
): Promise<{ code: number | null; output: string }> {
  const child = spawn(program, args, {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: within,
    killSignal: 'SIGKILL',
    ...(cwd ? { cwd } : {}),
    ...identity(user),
  })
  let output = ''
  child.stdout.on('data', chunk => (output += chunk))
  child.stderr.on('data', chunk => (output += chunk))
  const [code] = (await once(child, 'close')) as [number | null]
  return { code, output }
}
