/**
 * Random programs of the library: many processes in virtual time acquire, wait, give up, transfer, adopt, release, close, start again and die, on one log. A
 * naive oracle knows what each call asked for and checks what it got.
 *
 * Checked after every step: exclusion, that each call got what it asked for, that tokens grow, and that a call that has ended left nothing behind. At the end:
 * every waiter is served, and nothing is left.
 */
import { strict as assert } from 'node:assert'
import fc from 'fast-check'
import { LeaseError } from '../../../src/errors.ts'
import type { AcquireOptions } from '../../../src/holder/acquire-options.ts'
import type { Lease } from '../../../src/lease.ts'
import { propose } from '../../../src/lessor/propose.ts'
import type { LeaseView } from '../../../src/lessor.ts'
import type { Session } from '../../../src/recipe/session.ts'
import { Replica } from '../../../src/replica/replica.ts'
import { MemoryLog, MemoryStore } from '../../../src/store/memory.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { shortest } from '../shortest.ts'
import { type Tamper, WorkerProcess } from './worker-process.ts'

const WORKERS = 8
/** Some processes have the same name. */
const NAMES = ['ann', 'ben', 'cat', 'dan', 'eve'] as const
const LOCKS = ['x', 'y', 'z'] as const
const CAPACITY: Readonly<Record<string, number>> = { seats: 4 }
const TTLS = [2_000, 6_000, 20_000] as const
const LONGEST = 40_000

const pick = fc.nat(1_000)
const worker = fc.nat(WORKERS - 1)
const ttl = fc.constantFrom(...TTLS)
const names = fc.subarray([...LOCKS], { minLength: 1, maxLength: 2 })
const what = fc.oneof(
  { weight: 4, arbitrary: fc.record({ names, mode: fc.constantFrom('exclusive', 'exclusive', 'shared') }) },
  { weight: 2, arbitrary: fc.record({ seats: fc.integer({ min: 1, max: 4 }) }) },
  { weight: 1, arbitrary: fc.record({ anyOf: fc.subarray([...LOCKS], { minLength: 2 }), any: fc.constantFrom(1, 2) }) },
)

const STEPS = {
  acquire: [
    12,
    {
      worker,
      what,
      ttl,
      wait: fc.constantFrom(0, 0, 0, 3_000),
      session: fc.oneof(fc.constant(null), fc.constant(null), pick),
      steal: fc.nat(11).map(n => n === 0),
      entry: fc.nat(5).map(n => n === 0),
    },
  ],
  try: [4, { worker, what, ttl }],
  release: [6, { lease: pick }],
  'release one': [2, { lease: pick, at: pick }],
  transfer: [
    5,
    { lease: pick, to: fc.constantFrom(...NAMES), waiter: fc.oneof(fc.constant(null), pick), known: fc.nat(2).map(n => n === 0) },
  ],
  adopt: [4, { worker, lease: pick }],
  abort: [4, { call: pick }],
  'begin session': [2, { worker }],
  'end session': [2, { session: pick }],
  renew: [3, { lease: pick, ttl: fc.constantFrom(0, 30_000) }],
  break: [1, { lease: pick, at: pick }],
  restart: [1, { worker }],
  kill: [1, { worker }],
  advance: [8, { ms: fc.constantFrom(10, 200, 1_000, 3_000, 9_000) }],
} as const satisfies Record<string, readonly [number, Record<string, fc.Arbitrary<unknown>>]>

type Fields<K extends keyof typeof STEPS> = {
  readonly [F in keyof (typeof STEPS)[K][1]]: (typeof STEPS)[K][1][F] extends fc.Arbitrary<infer T> ? T : never
}
export type LibraryStep = { readonly [K in keyof typeof STEPS]: Fields<K> & { readonly do: K } }[keyof typeof STEPS]
type StepOf<K extends keyof typeof STEPS> = Extract<LibraryStep, { readonly do: K }>
type What = StepOf<'acquire'>['what']

const step = fc.oneof(
  ...Object.entries(STEPS).map(([name, [weight, fields]]) => ({
    weight,
    arbitrary: fc.record({
      do: fc.constant(name),
      ...(fields as Record<string, fc.Arbitrary<unknown>>),
    }) as unknown as fc.Arbitrary<LibraryStep>,
  })),
)

/** Without fast-check's way to make them shorter: `playLibrary` has its own. */
export function libraryPrograms(length: number): fc.Arbitrary<readonly LibraryStep[]> {
  return fc.noShrink(fc.array(step, { minLength: 1, maxLength: length, size: 'max' }))
}

export interface LibraryReport {
  /** Each call ended in each way this many times. */
  readonly ends: Map<string, number>
}

export function newLibraryReport(): LibraryReport {
  return { ends: new Map() }
}

/** Plays a program. If anything is not as the oracle says, it throws, with a short program that fails. */
export async function playLibrary(steps: readonly LibraryStep[], report: LibraryReport): Promise<void> {
  if ((await failureOf(steps, report)) === undefined) return
  const short = await shortest(steps, async list => (await failureOf(list, newLibraryReport())) !== undefined)
  const cause = await failureOf(short, newLibraryReport())
  throw new Error(`a short program that fails:\n${short.map(one => JSON.stringify(one)).join('\n')}\n${cause}`, { cause })
}

/** Returns what the oracle says against a program; undefined: nothing. */
export async function failureOf(steps: readonly LibraryStep[], report: LibraryReport, tamper?: Tamper): Promise<unknown> {
  const office = await Office.open(report, tamper)
  try {
    await office.play(steps)
    return undefined
  } catch (error) {
    return error
  } finally {
    await office.close()
  }
}

/** One call of acquire, tryAcquire or adopt that is under way. */
interface Call {
  readonly process: WorkerProcess
  readonly step: string
  readonly asked: Asked | undefined
  readonly waits: boolean
  readonly abort: AbortController
}

interface Asked {
  readonly names: readonly string[]
  /** 0: all of them. */
  readonly any: number
  readonly shared: boolean
  readonly units: number
  readonly parent: number
  readonly entry: string | undefined
}

interface InHand {
  readonly process: WorkerProcess
  readonly lease: Lease
  readonly asked: Asked | undefined
  /** Its holder has given back these. */
  readonly given: Set<string>
  /** By resource; filled in when it is known. */
  grants: ReadonlyMap<string, { readonly units: number; readonly shared: boolean }> | undefined
}

class Office {
  readonly #clock: ManualClock
  readonly #servers: readonly Replica[]
  readonly #report: LibraryReport
  readonly #tamper: Tamper | undefined
  readonly #workers: WorkerProcess[]
  readonly #calls = new Set<Call>()
  readonly #sessions: { readonly process: WorkerProcess; readonly session: Session }[] = []
  #hands: InHand[] = []
  /** Answered and not yet looked at. */
  #answered: InHand[] = []
  /** Leases that were made by a transfer. */
  readonly #transferred = new Map<number, string>()
  readonly #tokens = new Map<string, number>()
  /** The names of processes that died: what they waited for lapses. */
  readonly #died = new Set<string>()
  readonly #failures: string[] = []
  #ending = false
  #entries = 0

  private constructor(clock: ManualClock, servers: readonly Replica[], report: LibraryReport, tamper: Tamper | undefined) {
    this.#tamper = tamper
    this.#clock = clock
    this.#servers = servers
    this.#report = report
    this.#workers = Array.from({ length: WORKERS }, (_, i) => this.#start(i))
  }

  static async open(report: LibraryReport, tamper?: Tamper): Promise<Office> {
    const clock = new ManualClock()
    const log = new MemoryLog({ clock })
    const servers = await Promise.all([1, 2].map(() => Replica.open(new MemoryStore({ log, clock }), { clock })))
    const office = new Office(clock, servers, report, tamper)
    const policies = Object.entries(CAPACITY).map(([name, capacity]) => office.#workers[0]!.leases.setPolicy(name, { capacity }))
    await clock.settle()
    await Promise.all(policies)
    return office
  }

  #start(i: number): WorkerProcess {
    return new WorkerProcess(this.#servers[i % 2]!, this.#clock, NAMES[i % NAMES.length]!, 6_000, this.#tamper)
  }

  async close(): Promise<void> {
    for (const process of this.#workers) process.kill()
    const closing = this.#servers.map(server => server[Symbol.asyncDispose]())
    await this.#clock.advance(5_000)
    await Promise.all(closing)
  }

  async play(steps: readonly LibraryStep[]): Promise<void> {
    for (const [i, next] of steps.entries()) {
      await this.#do(next)
      await this.#clock.settle()
      await this.#check(`step ${i}: ${JSON.stringify(next)}`)
    }
    await this.#finish()
  }

  // Steps

  async #do(next: LibraryStep): Promise<void> {
    switch (next.do) {
      case 'acquire':
      case 'try':
        return this.#acquire(next)
      case 'release':
        return this.#end(this.#hand(next.lease), hand => hand.lease.release())
      case 'release one':
        return this.#releaseOne(next)
      case 'transfer':
        return this.#transfer(next)
      case 'adopt':
        return this.#adopt(next)
      case 'abort': {
        const waiting = [...this.#calls].filter(({ waits }) => waits)
        waiting[next.call % Math.max(1, waiting.length)]?.abort.abort(new Error('given up'))
        return
      }
      case 'begin session': {
        const process = this.#workers[next.worker]!
        void this.#settled(process.leases.session({ ttl: 20_000 }), process, session => this.#sessions.push({ process, session }))
        return
      }
      case 'end session': {
        const found = this.#sessions.splice(next.session % Math.max(1, this.#sessions.length), 1)[0]
        if (found !== undefined) void this.#settled(found.session.end(), found.process)
        return
      }
      case 'renew':
        return this.#renew(next)
      case 'break': {
        const hand = this.#hand(next.lease)
        const resource = hand?.lease.resources[next.at % hand.lease.resources.length]
        if (resource !== undefined)
          void this.#settled(this.#workers[0]!.leases.break(resource), this.#workers[0]!, undefined, ['NOT_FOUND'])
        return
      }
      case 'restart':
        return this.#restart(next.worker)
      case 'kill':
        this.#workers[next.worker]!.kill()
        this.#died.add(this.#workers[next.worker]!.leases.holder)
        this.#forget(this.#workers[next.worker]!)
        this.#workers[next.worker] = this.#start(next.worker)
        return
      case 'advance':
        return this.#clock.advance(next.ms)
    }
  }

  #acquire(next: StepOf<'acquire'> | StepOf<'try'>): void {
    const process = this.#workers[next.worker]!
    const own = this.#sessions.filter(other => other.process === process && other.session.active)
    const session = next.do === 'try' || next.session === null ? undefined : own[next.session % Math.max(1, own.length)]?.session
    const entry = next.do === 'acquire' && next.entry ? `who/${++this.#entries}` : undefined
    const asked: Asked = { ...askedOf(next.what), parent: session?.id ?? 0, entry }
    const abort = new AbortController()
    const options: AcquireOptions = {
      ...{ ttl: next.ttl, signal: abort.signal, mode: asked.shared ? 'shared' : 'exclusive', units: asked.units },
      ...(asked.any > 0 && { advanced: { any: asked.any } }),
      ...(session !== undefined && { parent: session.lease }),
      ...(entry !== undefined && { entries: { [entry]: 'v' } }),
      ...(next.do === 'acquire' && next.wait > 0 && { wait: next.wait }),
      ...(next.do === 'acquire' && next.steal && asked.any === 0 && { steal: true }),
    }
    const { leases } = process
    const call = { process, step: next.do, asked, waits: next.do === 'acquire', abort }
    this.#follow(call, next.do === 'try' ? leases.tryAcquire(asked.names, options) : leases.acquire(asked.names, options))
  }

  #follow(call: Call, answer: Promise<Lease | undefined>): void {
    const { process, step: name } = call
    this.#calls.add(call)
    answer.then(
      lease => {
        this.#calls.delete(call)
        this.#count(`${name} ${lease === undefined ? 'held by another' : 'granted'}`)
        if (lease === undefined) return
        if (call.abort.signal.aborted) this.#failures.push('a call that was given up resolved with a lease')
        const hand = { process, lease, asked: call.asked, given: new Set<string>(), grants: undefined }
        this.#hands.push(hand)
        this.#answered.push(hand)
        if (this.#ending) this.#end(hand, () => lease.release())
      },
      (error: unknown) => {
        this.#calls.delete(call)
        if (call.abort.signal.aborted && error === call.abort.signal.reason) return this.#count(`${name} given up`)
        const code = error instanceof LeaseError ? error.code : String(error)
        this.#count(`${name} ${code}`)
        const expected = {
          acquire: ['TIMEOUT', 'GONE', 'UNAVAILABLE', 'LOST', 'DEADLOCK'],
          try: ['GONE', 'UNAVAILABLE'],
          adopt: ['HELD', 'GONE', 'UNAVAILABLE', 'INVALID'],
        }
        if (!expected[name as 'try'].includes(code)) this.#failures.push(`${name} ended with ${error}`)
      },
    )
  }

  #releaseOne({ lease: n, at }: StepOf<'release one'>): void {
    const hand = this.#hand(n)
    const left = hand?.lease.resources.filter(name => !hand.given.has(name)) ?? []
    if (hand === undefined || left.length < 2) return
    const resource = left[at % left.length]!
    // The holder stops using it before it says so.
    hand.given.add(resource)
    void this.#settled(propose(hand.process.lessor, { kind: 'release', lease: hand.lease.id, resource }), hand.process)
  }

  #transfer({ lease: n, to, waiter, known }: StepOf<'transfer'>): void {
    const hand = this.#hand(n)
    const waiting = [...this.#calls].filter(({ waits, process }) => waits && process !== hand?.process)
    const call = waiter === null ? undefined : waiting[waiter % Math.max(1, waiting.length)]
    const name = call?.process.leases.holder ?? to
    if (hand === undefined) return
    this.#hands = this.#hands.filter(other => other !== hand)
    void (async () => {
      const { value = [] } = known && call !== undefined ? await this.#servers[0]!.read({ kind: 'leases', holder: name }) : {}
      const incarnation = value.find(({ status }) => status === 'waiting')?.incarnation
      const transferred = hand.lease.transfer(name, incarnation === undefined ? {} : { incarnation })
      await this.#settled(transferred, hand.process, id => this.#transferred.set(id, name), ['GONE', 'LOST', 'INVALID', 'UNAVAILABLE'])
    })()
  }

  #adopt({ worker: i, lease: n }: StepOf<'adopt'>): void {
    const process = this.#workers[i]!
    const own = [...this.#transferred].filter(([, name]) => name === process.leases.holder).map(([id]) => id)
    const id = own[n % Math.max(1, own.length)]
    if (id === undefined) return
    this.#follow({ process, step: 'adopt', asked: undefined, waits: false, abort: new AbortController() }, process.leases.adopt(id))
  }

  #renew({ lease: n, ttl: longer }: StepOf<'renew'>): void {
    const hand = this.#hand(n)
    if (hand === undefined) return
    if (longer === 0) void this.#settled(hand.lease.renew(), hand.process, undefined, ['GONE', 'LOST', 'UNAVAILABLE'])
    else void this.#settled(propose(hand.process.lessor, { kind: 'renew', leases: [hand.lease.id], ttl: longer }), hand.process)
  }

  async #restart(i: number): Promise<void> {
    const process = this.#workers[i]!
    this.#hands = this.#hands.filter(hand => hand.process !== process)
    this.#answered = this.#answered.filter(hand => hand.process !== process)
    const sessions = this.#sessions.filter(other => other.process === process)
    for (const session of sessions) this.#sessions.splice(this.#sessions.indexOf(session), 1)
    const closed = process.leases.close()
    await this.#clock.advance(1_500)
    await closed
    this.#workers[i] = this.#start(i)
  }

  /** Its memory is gone. What it held lapses. */
  #forget(process: WorkerProcess): void {
    for (const call of [...this.#calls]) if (call.process === process) this.#calls.delete(call)
    this.#hands = this.#hands.filter(hand => hand.process !== process)
    this.#answered = this.#answered.filter(hand => hand.process !== process)
    const sessions = this.#sessions.filter(other => other.process === process)
    for (const session of sessions) this.#sessions.splice(this.#sessions.indexOf(session), 1)
  }

  #hand(n: number): InHand | undefined {
    return this.#hands[n % Math.max(1, this.#hands.length)]
  }

  #end(hand: InHand | undefined, act: (hand: InHand) => Promise<unknown>): void {
    if (hand === undefined) return
    this.#hands = this.#hands.filter(other => other !== hand)
    void this.#settled(act(hand), hand.process)
  }

  /** Waits for an answer that must come without an error, or with one of these. */
  async #settled<T>(
    answer: Promise<T>,
    process: WorkerProcess,
    then: (value: T) => unknown = () => {},
    codes: readonly string[] = [],
  ): Promise<void> {
    try {
      const value = await answer
      if (process.alive) then(value)
    } catch (error) {
      if (!(error instanceof LeaseError) || ![...codes, 'UNAVAILABLE'].includes(error.code)) this.#failures.push(String(error))
    }
  }

  #count(end: string): void {
    this.#report.ends.set(end, (this.#report.ends.get(end) ?? 0) + 1)
  }

  // The oracle

  async #check(where: string): Promise<void> {
    const leases = await this.#leases()
    for (const hand of this.#answered.splice(0)) this.#judge(hand, leases, where)
    this.#hands = this.#hands.filter(({ lease }) => lease.held)
    this.#exclusion(where)
    this.#leftovers(leases, where)
    assert.deepEqual(this.#failures, [], where)
  }

  async #leases(): Promise<readonly LeaseView[]> {
    const reading = this.#servers[0]!.read({ kind: 'leases' }, { consistent: true })
    await this.#clock.settle()
    return (await reading).value
  }

  /** Checks whether a call got what it asked for. */
  #judge(hand: InHand, leases: readonly LeaseView[], where: string): void {
    const { lease, asked } = hand
    const there = leases.find(other => other.lease === lease.id)
    if (!lease.held || there === undefined) return
    hand.grants = new Map(there.grants.map(({ resource, units, shared }) => [resource, { units: shared ? 0 : units, shared }]))
    for (const [name, token] of Object.entries(lease.tokens)) {
      if (CAPACITY[name] !== undefined || hand.grants.get(name)?.shared === true) continue
      assert(token > (this.#tokens.get(name) ?? 0), `${where}: the token ${token} of ${name} is not greater than the one before`)
      this.#tokens.set(name, token)
    }
    if (asked === undefined) return
    const wrong = [...mismatches(asked, there, this.#transferred.has(lease.id))]
    assert(wrong.length === 0, `${where}: lease ${lease.id} ${wrong.join(', and ')}`)
  }

  /** No two processes believe in grants that exclude each other. */
  #exclusion(where: string): void {
    const used = new Map<string, { units: number; sharers: number; who: string[] }>()
    for (const { lease, grants, given } of this.#hands)
      for (const [name, { units, shared }] of grants ?? []) {
        if (given.has(name)) continue
        const sum = used.get(name) ?? { units: 0, sharers: 0, who: [] }
        used.set(name, {
          units: sum.units + units,
          sharers: sum.sharers + (shared ? 1 : 0),
          who: [...sum.who, `${lease.holder} (${lease.id})`],
        })
      }
    for (const [name, { units, sharers, who }] of used) {
      const isFine = sharers === 0 ? units <= (CAPACITY[name] ?? 1) : units === 0
      assert(isFine, `${where}: ${name} is believed to be held by ${who}`)
    }
  }

  /** As many leases wait as calls: a call that has ended left nothing in a queue. Processes of one name are counted together, with those that died. */
  #leftovers(leases: readonly LeaseView[], where: string): void {
    for (const name of NAMES) {
      if (this.#died.has(name)) continue
      const calls = [...this.#calls].filter(({ process, waits }) => process.leases.holder === name && waits).length
      const waiting = leases.filter(({ status, holder, grants }) => status === 'waiting' && holder === name && grants.length === 0)
      assert(waiting.length <= calls, `${where}: ${waiting.length} leases of ${name} wait, for ${calls} calls`)
    }
  }

  /** All holders stop: every waiter is served then, and nothing is left in the log. */
  async #finish(): Promise<void> {
    this.#ending = true
    for (const hand of [...this.#hands]) this.#end(hand, ({ lease }) => lease.release())
    for (const { process, session } of this.#sessions.splice(0)) void this.#settled(session.end(), process)
    for (let passed = 0; passed < 3 * LONGEST && this.#calls.size > 0; passed += 1_000) await this.#clock.advance(1_000)
    assert.deepEqual(
      [...this.#calls].map(({ asked }) => asked?.names),
      [],
      'calls that still wait although all holders have stopped',
    )
    await this.#clock.advance(2 * LONGEST)
    await this.#check('at the end')
    const left = await this.#leases()
    assert.deepEqual(
      left.map(({ lease, holder, status }) => `${lease} of ${holder}: ${status}`),
      [],
      'leases that are left at the end',
    )
  }
}

function askedOf(what: What): Pick<Asked, 'names' | 'any' | 'shared' | 'units'> {
  if ('seats' in what) return { names: ['seats'], any: 0, shared: false, units: what.seats }
  if ('anyOf' in what) return { names: what.anyOf, any: what.any, shared: false, units: 1 }
  return { names: what.names, any: 0, shared: what.mode === 'shared', units: 1 }
}

/** `mayBeMore`: a transfer answered the request, and may have brought more than was asked for. */
function* mismatches({ names: wanted, any, shared, units, parent, entry }: Asked, lease: LeaseView, mayBeMore: boolean): Generator<string> {
  const all = lease.grants.map(({ resource }) => resource)
  const got = all.filter(name => wanted.includes(name))
  const needed = any === 0 ? wanted.length : any
  if (got.length !== needed || (all.length !== needed && !(mayBeMore && any === 0)))
    yield `has ${all} instead of ${any === 0 ? 'all' : `any ${any}`} of ${wanted}`
  for (const grant of lease.grants.filter(({ resource }) => wanted.includes(resource))) {
    if (grant.shared !== shared) yield `has ${grant.resource} ${grant.shared ? 'shared' : 'exclusively'}`
    else if (!shared && grant.units < units) yield `has ${grant.units} units of ${grant.resource} instead of ${units}`
  }
  if (lease.parent !== parent) yield `has the parent ${lease.parent} instead of ${parent}`
  if (entry !== undefined && !lease.entries.some(({ key }) => key === entry)) yield `has not the entry ${entry}`
}
