/**
 * The faults that `certify` injects: cut connections, a killed writer and, with the operator's own command, a restart of the engine. Each
 * checks afterwards what the log holds.
 *
 * Not shown: what a power failure loses. An engine that was only killed finds unsynced data in the system's cache.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { type Clock, pause } from '../../clock.ts'
import { storeOf } from '../../connect/store-of.ts'
import { type ErrorCode, LeaseError } from '../../errors.ts'
import { propose } from '../../lessor/propose.ts'
import { Replica } from '../../replica/replica.ts'
import { type EngineUnderTest, messageOf, NotTried, type ScratchLog } from '../../store/certification.ts'
import { type Position, START, type Store } from '../../store.ts'
import { Cable } from '../../testing/cuttable-connection.ts'
import { missing, positionOf, readAll, small } from './measure.ts'

export interface Fault {
  readonly result: 'passed' | 'failed' | 'not tried'
  /** Why the check failed, or was not tried. */
  readonly reason?: string
  readonly [fact: string]: unknown
}

const ROUNDS = 10
/** The engine may be unreachable for this long. */
const TIMEOUT = 60_000

export async function answersCut(engine: EngineUnderTest, clock: Clock): Promise<Fault> {
  if (engine.addresses instanceof NotTried) throw engine.addresses
  const cables = await Promise.all(engine.addresses.map(address => Cable.to(address)))
  try {
    const ports = cables.map(({ port }) => port)
    const seen = await sentAgain(engine.log(), log => engine.through(log.url, ports), cables, clock)
    const applied = await appliedOnce(engine.log(), log => engine.through(log.url, ports), cables, clock)
    const cut = cables.reduce((sum, cable) => sum + cable.cut, 0)
    if (cut === 0) throw new NotTried('no answer passed that could be cut off')
    const wrong = [seen.wrong, applied.wrong].filter(why => why !== undefined)
    const { once: one, twice } = seen
    const facts = { cut, sent: ROUNDS, once: one, twice, proposed: ROUNDS, applied: applied.leases }
    return wrong.length > 0 ? { result: 'failed', reason: wrong.join('; '), ...facts } : { result: 'passed', ...facts }
  } finally {
    await Promise.all(cables.map(cable => cable[Symbol.asyncDispose]()))
  }
}

/** Sends each entry again from the same position until it is acknowledged. It must be in the log once or twice, and in order. */
async function sentAgain(log: ScratchLog, through: (log: ScratchLog) => string, cables: readonly Cable[], clock: Clock) {
  const store = await storeOf(through(log), { clock })
  let denied = 0
  try {
    let { head: after } = await store.open()
    after = positionOf(await store.append(small(-1), after))
    for (let round = 0; round < ROUNDS; round++) {
      for (const cable of cables) cable.cutAnswers(1)
      const codes = new Set<string>()
      after = positionOf(await retryUnavailable(clock, () => store.append(small(round), after), { codes }))
      for (const cable of cables) cable.heal()
      if (codes.has('UNAVAILABLE') && !codes.has('UNKNOWN')) denied |= 1 << round
    }
  } finally {
    await store[Symbol.asyncDispose]()
  }
  await using direct = log.store()
  await direct.open()
  const texts = (await readAll(direct)).map(({ bytes }) => Buffer.from(bytes).toString())
  const copies = Array.from({ length: ROUNDS }, (_, round) => texts.filter(text => text === Buffer.from(small(round)).toString()).length)
  const order = [...new Set(texts)].map(text => Number(/-?\d+/.exec(text)?.[0]))
  return { once: copies.filter(n => n === 1).length, twice: copies.filter(n => n === 2).length, wrong: wrong() }

  function wrong(): string | undefined {
    const gone = copies.filter(n => n === 0).length
    if (gone > 0) return `${gone} entries that were sent until acknowledged are not in the log`
    if (order.some((number, i) => number !== i - 1)) return `entries are not in the order in which they were sent: ${order.join(' ')}`
    // After UNAVAILABLE a proposer may send another record instead.
    if (copies.some((n, round) => n > 1 && (denied & (1 << round)) !== 0)) return 'the store said that nothing was done, but it was'
    return undefined
  }
}

/** The same with a replica: a command proposed once is applied once, even if the log holds its record twice. */
async function appliedOnce(log: ScratchLog, through: (log: ScratchLog) => string, cables: readonly Cable[], clock: Clock) {
  await using near = await Replica.open(await storeOf(through(log)))
  for (let round = 0; round < ROUNDS; round++) {
    await retryUnavailable(clock, () => near.read({ kind: 'summary' }, { consistent: true })) // reconnects after the last cut
    // The waiting read gets the entry too. Cut two answers, so that the answer to the append is one of them.
    for (const cable of cables) cable.cutAnswers(2)
    // A lease without resources: applied twice, it would be two leases. Sent again only if certainly nothing was done.
    await retryUnavailable(clock, () => propose(near, { kind: 'acquire', holder: 'certify', ttl: 600_000, wants: [] }), {
      unless: 'UNKNOWN',
    })
    for (const cable of cables) cable.heal()
  }
  await using direct = await Replica.open(log.store())
  const { leases } = (await direct.read({ kind: 'summary' }, { consistent: true })).value
  return { leases, wrong: leases === ROUNDS ? undefined : `${ROUNDS} leases were requested, and there are ${leases}` }
}

/** Kills a process that appends. Every entry acknowledged to it must be there. */
export async function writerKilled(engine: EngineUnderTest): Promise<Fault> {
  const log = engine.log()
  const program = new URL(import.meta.url.endsWith('.ts') ? '../../../dist/cli/certify/writer.js' : './writer.js', import.meta.url)
  // In the environment: every user can read a command line, and a URL may hold a password.
  const env = { ...process.env, LEASEHOLD_URL: log.url }
  const writer = spawn(process.execPath, [fileURLToPath(program)], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  let stderr = ''
  writer.stderr.on('data', chunk => (stderr += chunk))
  const ended = once(writer, 'close')
  const acknowledged: Position[] = []
  try {
    for await (const line of createInterface({ input: writer.stdout })) {
      const [index, nonce] = line.split(' ') as [string, string]
      acknowledged.push({ index: Number(index), nonce: BigInt(nonce) })
      if (acknowledged.length === 150) writer.kill('SIGKILL')
    }
  } finally {
    writer.kill('SIGKILL')
  }
  await ended
  if (acknowledged.length < 150) return { result: 'failed', reason: `the writer exited on its own: ${stderr.trim().slice(-300)}` }
  await using reader = log.store()
  await reader.open()
  const entries = await readAll(reader)
  const lost = missing(entries, acknowledged).length
  const facts = { acknowledged: acknowledged.length, lost, unacknowledged: entries.length - acknowledged.length + lost }
  return lost === 0 ? { result: 'passed', ...facts } : { result: 'failed', reason: `${lost} acknowledged entries are not there`, ...facts }
}

export interface Restart {
  readonly acknowledged: number
  readonly lost: number
  /** The longest time between two acknowledgements, in ms. */
  readonly unavailable: number
  /** A call failed, or a connection broke: the engine was really unreachable. */
  readonly noticed: boolean
  /** The writer whose records were lost got `diverged`. */
  readonly told: boolean
}

/** Appends while `command` restarts the engine, then checks which acknowledged entries are left. */
export async function restarted(engine: EngineUnderTest, command: string | undefined, clock: Clock): Promise<Fault & Partial<Restart>> {
  if (!engine.canRestart) throw new NotTried('a file has no engine to restart; its writer was killed instead')
  if (command === undefined) throw new NotTried('no --restart COMMAND was given')
  const log = engine.log()
  const writer = new RestartWriter(log.store(), clock)
  try {
    await writer.open()
    await writer.append(100)
    using connections = idleConnections(engine)
    const running = restart(command)
    const ended = running.then(
      () => {},
      () => {},
    )
    await writer.appendUntil(ended)
    await running
    await writer.append(20)
    if (connections.broken) writer.noticed = true
  } catch (error) {
    return { result: 'failed', reason: messageOf(error) }
  } finally {
    await writer.store[Symbol.asyncDispose]()
  }
  const { acknowledged, unavailable, noticed, told } = writer
  const lost = await lostOf(log, acknowledged, clock)
  const facts = { acknowledged: acknowledged.length, lost, unavailable: Math.round(unavailable), noticed, told }
  if (lost > 0) return { result: 'failed', reason: `${lost} of ${acknowledged.length} acknowledged entries are lost`, ...facts }
  if (told) return { result: 'failed', reason: 'the store reported DIVERGED, but the log lost nothing', ...facts }
  if (!noticed) throw new NotTried('the engine was never seen away: the command did not restart it, or another took over unseen')
  return { result: 'passed', ...facts }
}

/** Idle connections that show whether the engine went away: a store that retries hides a short absence. */
function idleConnections({ addresses }: EngineUnderTest): Disposable & { readonly broken: boolean } {
  const state = { broken: false }
  const sockets = addresses instanceof NotTried ? [] : addresses.map(address => connect(address))
  for (const socket of sockets) {
    socket.unref()
    socket.on('error', () => {}) // 'close' follows
    socket.on('close', () => (state.broken = true))
    socket.resume()
  }
  return {
    get broken() {
      return state.broken
    },
    [Symbol.dispose]() {
      for (const socket of sockets) socket.destroy()
    },
  }
}

async function lostOf(log: ScratchLog, acknowledged: readonly Position[], clock: Clock): Promise<number> {
  // The engine may still be starting.
  return retryUnavailable(clock, async () => {
    await using store = log.store()
    try {
      await store.open()
      return missing(await readAll(store), acknowledged).length
    } catch (error) {
      if (error instanceof LeaseError && error.code === 'DIVERGED') return acknowledged.length // nothing can be read
      throw error
    }
  })
}

async function restart(command: string): Promise<void> {
  const child = spawn(command, { shell: true, stdio: ['ignore', 'ignore', 'pipe'], timeout: 2 * TIMEOUT, killSignal: 'SIGKILL' })
  let stderr = ''
  child.stderr.on('data', chunk => (stderr += chunk))
  // Not 'close': a daemon that the command leaves behind keeps the pipe open.
  const [code, signal] = (await once(child, 'exit')) as [number | null, string | null]
  child.stderr.destroy()
  if (code !== 0) throw new Error(`the restart command ended with ${code ?? signal}: ${stderr.trim().slice(-300)}`)
}

/** Appends one entry after another and records which were acknowledged. */
class RestartWriter {
  readonly store: Store
  readonly acknowledged: Position[] = []
  unavailable = 0
  noticed = false
  told = false
  readonly #clock: Clock
  #after = START
  #last = 0

  constructor(store: Store, clock: Clock) {
    this.store = store
    this.#clock = clock
  }

  async open(): Promise<void> {
    this.#after = (await this.store.open()).head
    this.#last = this.#clock.now()
  }

  async appendUntil(over: Promise<void>): Promise<void> {
    let ended = false
    void over.then(() => (ended = true))
    while (!ended && !this.told) {
      await this.append(1)
      await pause(this.#clock, 5, undefined, { ref: true }) // a restart may take minutes: do not fill the log
    }
    await over
  }

  async append(count: number): Promise<void> {
    for (let i = 0; i < count && !this.told; i++) {
      const codes = new Set<string>()
      const answer = await retryUnavailable(this.#clock, () => this.store.append(small(this.acknowledged.length), this.#after), { codes })
      if (codes.size > 0) this.noticed = true
      if (answer.kind === 'diverged') this.told = true
      if (this.told) return
      this.#after = positionOf(answer)
      this.acknowledged.push(this.#after)
      const now = this.#clock.now()
      this.unavailable = Math.max(this.unavailable, now - this.#last)
      this.#last = now
    }
  }
}

interface RetryOptions {
  /** Collects the error codes. */
  readonly codes?: Set<string>
  /** An error code that is not retried. */
  readonly unless?: ErrorCode
}

/** Retries while the engine cannot be reached. */
async function retryUnavailable<T>(clock: Clock, work: () => Promise<T>, { codes, unless }: RetryOptions = {}): Promise<T> {
  const end = clock.now() + TIMEOUT
  for (;;) {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof LeaseError) || !['UNAVAILABLE', 'UNKNOWN'].includes(error.code)) throw error
      if (error.code === unless || clock.now() > end) throw error
      codes?.add(error.code)
    }
    await pause(clock, 25, undefined, { ref: true })
  }
}
