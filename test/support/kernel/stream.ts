/** Endless commands that make some sense in the state they meet, and some that make none. From a seed, so that a failure can be had again. */
import {
  type Acquire,
  type Attachment,
  COMPARED,
  type Command,
  type Comparison,
  type CreateKey,
  type EntryChange,
  type KeyLimits,
  type PolicyRules,
  type Proposal,
  RELATIONS,
  type Scope,
} from '../../../src/kernel/command.ts'
import { LOSS_CAUSES } from '../../../src/kernel/loss-cause.ts'
import { rule } from '../../../src/kernel/rule/policy.ts'
import { findLease } from '../../../src/kernel/state/leases.ts'
import { timerOf } from '../../../src/kernel/state/timers.ts'
import { type LeaseState, QUIET, SLOTS, type State } from '../../../src/kernel/state.ts'

/** mulberry32: small, and the same everywhere. */
export function random(seed: number): (below: number) => number {
  let a = seed >>> 0
  return below => {
    a = (a + 0x6d2b79f5) >>> 0
    let t = Math.imul(a ^ (a >>> 15), a | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) % below
  }
}

export interface StreamOptions {
  /** Without policies, keys and generations the population grows and stays. */
  readonly calm?: boolean
  readonly resources?: readonly string[]
  /** Bytes of the values put, so that snapshots have several chunks. */
  readonly bulk?: number
  /** Left out of the log that was written down before there was such a command. */
  readonly widening?: boolean
  /** Members of the pools `g` and `g/h` come and go, and are asked for. */
  readonly pools?: boolean
}

const RESOURCES = ['a', 'a/b', 'a/b/c', 'p', 'p/1', 'q', 'q/1/2'] as const
const POOLS = ['g', 'g/h'] as const
const VERBS: readonly Scope['verb'][] = ['acquire', 'register', 'renew', 'release', 'break', 'revoke', 'policy', 'admin']

export class Stream {
  readonly #random: (below: number) => number
  readonly #calm: boolean
  readonly #resources: readonly string[]
  readonly #value: string
  readonly #widening: boolean
  readonly #pools: boolean
  #operations = 0

  constructor(seed: number, { calm = false, resources = RESOURCES, bulk = 0, widening = true, pools = false }: StreamOptions = {}) {
    this.#random = random(seed)
    this.#calm = calm
    this.#resources = resources
    this.#value = 'v'.repeat(bulk)
    this.#widening = widening
    this.#pools = pools
  }

  next(state: State): Proposal {
    const command = this.#command(state)
    const key = this.#chance(8) && state.keys.size > 0 ? this.#one([...state.keys.keys(), 99]) : 0
    if (!this.#chance(5)) return { command, key }
    const seq = this.#chance(3) ? 1 + this.#random(this.#operations + 1) : ++this.#operations
    const asked = this.#chance(3) ? { asked: 1 + this.#random(2) } : {}
    return { command, key, op: { session: `s${this.#random(3)}`, seq, acked: this.#random(seq), ...asked } }
  }

  #chance(oneIn: number): boolean {
    return this.#random(oneIn) === 0
  }

  #one<T>(list: readonly T[]): T {
    return list[this.#random(list.length)]!
  }

  #lease(state: State): LeaseState | undefined {
    if (state.leases.size === 0) return undefined
    let at = this.#random(state.leases.size)
    for (const lease of state.leases.values()) if (at-- === 0) return lease
    return undefined
  }

  /** Mostly of a lease that is there; else of one that ended, or never was. */
  #id(state: State): number {
    if (this.#chance(8)) return state.origin + 1 + this.#random(state.nextLease - state.origin + 2)
    return this.#lease(state)?.id ?? state.nextLease
  }

  #holder(): string {
    return `h${this.#random(5)}`
  }

  #command(state: State): Command {
    const resource = this.#one(this.#resources)
    const dice = this.#random(100)
    if (state.moved !== undefined && this.#chance(3)) return state.awaiting ? { kind: 'move', into: 'end' } : { kind: 'move', stay: true }
    if (this.#pools && !this.#chance(4)) return this.#pool(state)
    if (this.#widening && this.#chance(25)) return this.#widen(state)
    if (this.#widening && this.#chance(12)) return this.#transaction(state)
    if (dice < 34) return this.#chance(3) ? this.#register() : this.#acquire(state)
    if (dice < 46) return { kind: 'renew', leases: [1, 2, 3].map(() => this.#id(state)), ...(this.#chance(6) && { waiting: true }) }
    if (dice < 58) return this.#release(state, resource)
    if (dice < 70) return this.#due(state)
    if (dice < 73) return { kind: 'aged', marks: [1, 2].map(() => ({ ...this.#timer(state), ms: this.#random(20_000) })) }
    if (dice < 75) return { kind: 'aged-together', run: Math.max(0, state.run.number - this.#random(2)), ms: this.#random(5_000) }
    // As an owner writes it. Nothing is drawn for the nonce: streams of version 1 stay as they were.
    if (dice < 76) return { kind: 'run', owned: this.#chance(2), nonce: state.index + 1, secret: `secret ${state.index}` }
    if (dice < 80) return { kind: 'put', lease: this.#id(state), ...this.#entry(8) }
    if (dice < 82) return { kind: 'delete', key: this.#entry(8).key, ...(this.#chance(3) && { lease: this.#id(state) }) }
    if (dice < 86) return this.#revoke(state)
    if (dice < 88) return { kind: 'transfer', lease: this.#id(state), to: this.#holder(), ...(this.#chance(2) && { stopped: true }) }
    if (dice < 90) return { kind: 'break', resource, ...(this.#chance(2) && { after: 100 + this.#random(5_000) }), by: 'ops' }
    if (dice < 92) return { kind: 'recall', resource, by: this.#holder() }
    if (dice < 94) return { kind: 'fence', resource, token: state.origin + 1 + this.#random(state.nextToken - state.origin) }
    if (dice < 96) return { kind: 'tick', n: state.tick + (this.#chance(4) ? 2 : 1), elapsed: this.#random(9_000) }
    return this.#calm ? { kind: 'recall', resource } : this.#govern(state)
  }

  #pool(state: State): Command {
    const pool = this.#one(POOLS)
    const dice = this.#random(20)
    if (dice < 7) {
      const entries = [1, 2].slice(this.#random(2)).map(() => this.#offer(pool))
      const keys = new Set(entries.map(({ key }) => key))
      const grace = this.#chance(3) ? { grace: 1_000 } : {}
      return { kind: 'acquire', holder: this.#holder(), ttl: 5_000, wants: [], entries: entries.slice(0, keys.size), ...grace }
    }
    if (dice < 8) return { kind: 'put', lease: this.#id(state), ...this.#offer(pool) }
    if (dice < 9 && this.#chance(2)) return { kind: 'delete', key: this.#offer(pool).key }
    if (dice < 9) {
      if (this.#chance(2)) return this.#discipline(pool)
      const rules = { queue: this.#one(['fifo', 'fit'] as const), aging: this.#random(2) * 1_000, maxHold: this.#random(2) * 3_000 }
      const prefix = this.#one([pool, pool, `${pool}/m1`])
      return { kind: 'policy', prefix, rules: { ...rules, ...(prefix !== pool && { capacity: this.#random(4) }) } }
    }
    if (dice < 10)
      return {
        kind: 'acquire',
        holder: this.#holder(),
        ttl: 5_000,
        wants: [{ resource: `${pool}/m${this.#random(4)}` }],
        wait: this.#chance(2),
      }
    if (dice < 11) return { kind: 'extend', lease: this.#id(state), by: 1_000 * this.#random(20) }
    return this.#take(state, pool)
  }

  /** Rules of its queue, or of an account. */
  #discipline(pool: string): Command {
    if (this.#chance(3)) {
      const rules = { quotaUnits: this.#random(4), quotaBorrow: this.#random(3), shareWeight: 50 + this.#random(100) }
      return { kind: 'policy', prefix: `${pool}/accounts/t${this.#random(3)}`, rules }
    }
    const rules = {
      queue: this.#one(['fifo', 'fit', 'backfill', 'fair'] as const),
      preempt: this.#one(['none', 'marked', 'marked'] as const),
      minHold: this.#random(2) * 2_000,
      preemptNotice: this.#random(3) * 1_000,
      shareHalfLife: 1_000 + this.#random(20_000),
      sharePenalty: this.#random(3) * 1_000,
    }
    return { kind: 'policy', prefix: pool, rules }
  }

  #take(state: State, pool: string): Acquire {
    const conditions = [
      ...([
        { label: 'x', test: 'in', values: ['1', '2'] },
        { label: 'x', test: 'not-in', values: ['1'] },
      ] as const),
      ...([
        { label: 'x', test: 'at-least', values: ['2'] },
        { label: 'y', test: 'absent' },
        { label: 'y', test: 'present' },
      ] as const),
      ...([
        { label: 'x', test: 'less', values: ['2.5'] },
        { label: 'y', test: 'more', values: ['0'] },
      ] as const),
    ]
    const size = this.#chance(4)
      ? { total: 1 + this.#random(5) }
      : { ...(this.#chance(2) && { count: 1 + this.#random(3) }), ...(this.#chance(2) && { units: 1 + this.#random(2) }) }
    const from = this.#chance(8) ? 1_000 * (1 + this.#random(20)) : undefined
    return {
      kind: 'acquire',
      holder: this.#holder(),
      ttl: 5_000,
      wants: [],
      wait: !this.#chance(4),
      pool: {
        pool,
        ...size,
        ...(this.#chance(2) && { match: [this.#one(conditions)] }),
        ...(this.#chance(4) && { near: this.#one(['x', 'y']) }),
        ...(this.#chance(3) && { account: `t${this.#random(3)}` }),
        ...(this.#chance(4) && { expect: 1_000 * (1 + this.#random(9)) }),
        ...(this.#chance(4) && { preemptible: true }),
        ...(from !== undefined && { from }),
      },
      ...(this.#chance(4) && { priority: this.#random(3) - 1 }),
      ...((this.#chance(4) || from !== undefined) && { maxLife: 5_000 + 1_000 * this.#random(9) }),
      ...(this.#chance(8) && { holding: [this.#id(state)] }),
      ...(this.#chance(10) && { entries: [{ key: `e/${this.#random(3)}`, value: 'v' }] }),
      ...(this.#chance(10) && { parent: this.#id(state) }),
      // Its class of work: the log counts how long it is held.
      ...(this.#chance(3) && { labels: [['learn', `jobs/x=${this.#random(3)}`] as const] }),
    }
  }

  #offer(pool: string): Attachment {
    const labels = { ...(this.#chance(2) && { x: String(1 + this.#random(3)) }), ...(this.#chance(2) && { y: this.#one(['1', 'red']) }) }
    const value = this.#chance(9) ? this.#one(['', 'x', '{"units":0}', '[]']) : JSON.stringify({ labels, units: 1 + this.#random(3) })
    return { key: `pool/${pool}/m${this.#random(4)}`, value }
  }

  /** Mostly of one that waits for any of several. */
  #widen(state: State): Command {
    const waiting = [...state.leases.values()].filter(({ extras }) => (extras?.any ?? 0) > 0)
    const lease = waiting.length > 0 && !this.#chance(6) ? this.#one(waiting).id : this.#id(state)
    const units = this.#chance(3) ? { units: 1 + this.#random(3) } : this.#chance(3) ? { shared: true } : {}
    return {
      kind: 'widen',
      lease,
      wants: [this.#one(this.#resources), this.#one(this.#resources)].map(resource => ({ resource, ...units })),
    }
  }

  /** Of a few keys, some of which are attached to leases, sometimes with a grant or a release; first the policy that allows it. */
  #transaction(state: State): Command {
    const prefix = this.#one(['svc', 'kv/a'])
    if (rule(state, prefix, 'freeEntries') === 0 && !this.#chance(5))
      return { kind: 'policy', prefix, rules: { freeEntries: 3 + this.#random(4), ...(this.#chance(2) && { freeBytes: 4_000 }) } }
    const key = () => `${this.#chance(9) ? this.#one(['kv', 'services/few']) : prefix}/${this.#random(8)}`
    const compare = [0, 1].slice(0, this.#random(3)).map(() => this.#comparison(state, key()))
    const branch = () => {
      const keys = new Set([0, 1, 2].slice(0, this.#random(4)).map(key))
      return [...keys].map((name): EntryChange => {
        if (this.#chance(3)) return { key: name, delete: true }
        return { key: name, value: this.#text(), ...(this.#chance(3) && { lease: this.#id(state) }) }
      })
    }
    const [success, failure] = [branch(), this.#chance(2) ? branch() : []]
    const list = <T>(name: string, items: readonly T[]) => (items.length > 0 ? { [name]: items } : {})
    if (this.#chance(4)) {
      const changes = success.map(change =>
        change.delete === true || change.lease !== undefined || this.#chance(2) ? change : { ...change, own: true },
      )
      const wants = [{ resource: this.#one(this.#resources) }]
      const asked = { holder: this.#holder(), ttl: 100 + this.#random(60_000), wants }
      return { kind: 'acquire', ...asked, ...list('compare', compare), ...list('changes', changes) }
    }
    if (this.#chance(6)) return { kind: 'release', lease: this.#id(state), ...list('compare', compare), ...list('changes', success) }
    return { kind: 'transaction', ...list('compare', compare), ...list('success', success), ...list('failure', failure) }
  }

  #comparison(state: State, key: string): Comparison {
    const field = this.#one(COMPARED)
    const there = state.entries.get(key) ?? state.free.get(key)
    if (field === 'value')
      return { key, field, is: this.#one(RELATIONS.slice(0, 2)), value: this.#chance(2) ? this.#text() : (there?.value ?? 'v') }
    const found = field === 'lease' ? (state.entries.get(key)?.lease.id ?? 0) : (there?.[field] ?? 0)
    const number = this.#chance(3) ? this.#random(4) : found
    return { key, field, is: this.#one(RELATIONS), ...(number > 0 && { number }) }
  }

  #release(state: State, resource: string): Command {
    if (this.#chance(2)) {
      const id = this.#id(state)
      const children = this.#widening ? [...(findLease(state, id)?.extras?.children ?? [])].map(child => child.id) : []
      const stopped = children.length > 0 && { stopped: children }
      return this.#chance(4)
        ? { kind: 'release', lease: id, ...stopped, lost: this.#one(LOSS_CAUSES) }
        : { kind: 'release', lease: id, ...stopped }
    }
    const lease = this.#lease(state)
    const held = lease !== undefined && lease.grants.length > 0 && !this.#chance(4) ? this.#one(lease.grants).resource.name : resource
    return { kind: 'release', lease: lease?.id ?? state.nextLease, resource: held }
  }

  #text(): string {
    return this.#value === '' ? `v${this.#random(9)}é` : this.#value
  }

  /** One of the registry's or not. Its services are small and large, so that some of them are preserved. */
  #entry(names: number): Attachment {
    const value = this.#text()
    const generation = this.#chance(6) ? { generation: 1 + this.#random(3) } : {}
    if (this.#chance(2)) return { key: `svc/${this.#random(names)}`, value, ...generation }
    const key = this.#chance(3) ? `services/few/${this.#random(2)}` : `services/many/${this.#random(4 * names)}`
    return { key: this.#chance(4) ? `${key}/state` : key, value, ...generation }
  }

  /** Many that share a service and nothing else, so that it is preserved, swept and damped. */
  #register(): Acquire {
    const n = this.#random(12)
    const entries = [{ key: `services/many/${n}`, value: this.#text() }]
    return {
      kind: 'acquire',
      holder: `r${n}`,
      ttl: 100 + this.#random(9_000),
      wants: [],
      entries,
      ...(!this.#chance(3) && { grace: 1_000 }),
    }
  }

  #govern(state: State): Command {
    const dice = this.#random(10)
    if (dice < 6) {
      const prefix = this.#one(['', 'a', 'a/b', 'p', 'q/', 'services/', 'services/many'])
      return this.#chance(5) ? { kind: 'policy', prefix } : { kind: 'policy', prefix, rules: this.#rules() }
    }
    if (dice < 8)
      return {
        kind: 'key',
        name: `k${this.#random(9)}`,
        hash: '0123456789abcdef'.repeat(4),
        allow: [1, 2].map(() => ({ verb: this.#one(VERBS), prefix: this.#one(['', 'a', 'p/', 'q', 'svc', 'services']) })),
        ...(this.#chance(2) && this.#bounds()),
      }
    if (state.moved === undefined && this.#chance(12)) return { kind: 'move', ...this.#one([{}, { to: 'b' }, { into: 'begin' }] as const) }
    if (dice < 9) return this.#changeKey(1 + this.#random(state.nextKey))
    return this.#chance(3)
      ? { kind: 'generation', lease: state.nextLease, token: state.nextToken, revision: state.revision, quiet: this.#random(9_000) }
      : { kind: 'due', timer: QUIET, epoch: state.quietEpochs }
  }

  #bounds(): Partial<CreateKey> {
    return {
      ...(this.#chance(2) && { group: `team${this.#random(2)}` }),
      ...(this.#chance(2) && { limits: this.#limits() }),
      ...(this.#chance(6) && { holders: ['h1', 'h2', 'r*'] }),
      ...(this.#chance(6) && { accounts: this.#one([['a1'], ['h*', 'a1']]) }),
      ...(this.#chance(6) && { priority: { low: -2, high: this.#random(3) - 1 } }),
      ...(this.#chance(4) && { noMembers: true }),
      ...(this.#chance(6) && { expires: 900 + this.#random(9_000) }),
    }
  }

  #limits(): KeyLimits {
    return {
      ...(this.#chance(2) && { leases: this.#random(6) }),
      ...(this.#chance(2) && { waiters: this.#random(3) }),
      ...(this.#chance(2) && { entries: this.#random(4) }),
      ...(this.#chance(3) && { bytes: this.#random(60) }),
    }
  }

  #changeKey(id: number): Command {
    const dice = this.#random(5)
    if (dice < 2) return { kind: 'unkey', id }
    if (dice === 2) return { kind: 'limit', id, limits: this.#limits() }
    if (dice === 3) return { kind: 'limit', group: `team${this.#random(2)}`, ...(!this.#chance(4) && { limits: this.#limits() }) }
    return { kind: 'rotate', id, hash: 'fedcba9876543210'.repeat(4), ...(!this.#chance(3) && { overlap: 1 + this.#random(9_000) }) }
  }

  #rules(): PolicyRules {
    const sometimes = <T extends object>(rule: T) => (this.#chance(3) ? rule : {})
    return {
      ...sometimes({ capacity: this.#random(5) }),
      ...sometimes({ lockDelay: this.#random(3) * 1_000 }),
      ...sometimes({ grace: this.#random(3) * 1_000 }),
      ...sometimes({ maxHold: this.#random(3) * 1_000 }),
      ...sometimes({ maxLife: this.#random(3) * 20_000 }),
      ...sometimes({ queue: this.#one(['fifo', 'fit'] as const) }),
      ...sometimes({ aging: this.#random(3) * 500 }),
      ...sometimes({ quota: this.#random(9) }),
      ...sometimes({ waiters: 1 + this.#random(9) }),
      ...sometimes({ flapPenalty: this.#random(3) * 1_000, flapHalfLife: 1_000 + this.#random(20_000) }),
      ...sometimes({ preserveShare: this.#random(101), preserveLeast: 1 + this.#random(4), preserveMost: this.#random(60_000) }),
      ...sometimes({ sweepShare: 1 + this.#random(100) }),
    }
  }

  #revoke(state: State): Command {
    const target = this.#one([
      { lease: this.#id(state) },
      { holder: this.#holder() },
      { prefix: this.#one(['a/b', 'p/1', 'q/', 'svc/3', 'services/few']) },
    ])
    return { kind: 'revoke', target, ...(this.#chance(3) && { force: true }), by: 'ops' }
  }

  #timer(state: State): { timer: number; epoch: number } {
    const lease = this.#lease(state)
    if (lease === undefined) return { timer: QUIET, epoch: state.quietEpochs }
    const slots = [0, 0, 1, 2, 3, 4].filter(slot => timerOf(lease, slot as 0) !== undefined)
    const slot = this.#one(slots)
    return { timer: lease.id * SLOTS + slot, epoch: timerOf(lease, slot as 0)!.epoch - (this.#chance(8) ? 1 : 0) }
  }

  #due(state: State): Command {
    return { kind: 'due', ...this.#timer(state) }
  }

  #acquire(state: State): Acquire {
    const names = [...new Set([0, 1, 2].slice(0, this.#random(4)).map(() => this.#one(this.#resources)))]
    const wants = names.map(resource =>
      this.#chance(4) ? { resource, shared: true } : { resource, units: 1 + (this.#chance(4) ? this.#random(3) : 0) },
    )
    const wait = wants.length > 0 && !this.#chance(3)
    const mayState = wants.length > 0 && wants.every(want => !('shared' in want))
    const known = this.#lease(state)
    const mine = this.#chance(2) && known !== undefined ? known : undefined
    const ttl = 100 + this.#random(60_000)
    const command: Acquire = {
      kind: 'acquire',
      holder: mine?.holder.name ?? this.#holder(),
      ttl,
      wants,
      ...(mine !== undefined && { incarnation: mine.incarnation }),
      ...(wait && { wait }),
      ...(wants.length > 1 && this.#chance(4) && { any: 1 + this.#random(wants.length) }),
      ...(this.#chance(4) && { priority: this.#random(7) - 3 }),
      ...(this.#chance(this.#value === '' ? 5 : 1) && {
        entries: [this.#entry(this.#value === '' ? 8 : 400)],
      }),
      ...(this.#chance(5) && { parent: this.#id(state) }),
      ...(this.#chance(9) && { labels: [['zone', this.#text()]] as const }),
      ...(wait && this.#chance(3) && { holding: [this.#id(state), this.#id(state)] }),
      ...(this.#chance(6) && { grace: this.#random(2_000) }),
      ...(this.#chance(6) && { maxLife: 1 + this.#random(20_000) }),
      ...(wait && this.#chance(12) && { steal: this.#one(['after', 'force'] as const) }),
      ...(this.#chance(9) && { recall: true }),
    }
    // These follow from the ttl, so that all other draws stay as they were.
    const mayCover = wants.length > 0 && wants.every(({ units = 1 }) => units === 1)
    if (mayCover && command.any === undefined && ttl % 7 === 3) return { ...command, covers: true }
    return mayState && command.any === undefined && ttl % 6 === 0 ? { ...command, permits: 1 + (ttl % 5) } : command
  }
}
