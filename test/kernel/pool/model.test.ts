/** The kernel does what the naive model of the disciplines says, command by command. */
import { strict as assert } from 'node:assert'
import { describe, expect, test } from 'vitest'
import { apply } from '../../../src/kernel/apply.ts'
import type { Command, PolicyRules } from '../../../src/kernel/command.ts'
import type { Outcome } from '../../../src/kernel/outcome.ts'
import { serviceOrder } from '../../../src/kernel/rule/pool/turn.ts'
import { positionInPool } from '../../../src/kernel/rule/pool/waiters.ts'
import { timerId } from '../../../src/kernel/state/timers.ts'
import { CAP, createState, FROZEN, type LeaseState, PREEMPT, type State, TERM, WAITING } from '../../../src/kernel/state.ts'
import { type Ask, type ModelRules, PoolModel } from '../../support/kernel/pool-model.ts'
import { random } from '../../support/kernel/stream.ts'

const POOL = 'g'
/** More are run with LEASEHOLD_SEEDS. */
const SEEDS = Number(process.env.LEASEHOLD_SEEDS ?? 8)
const QUEUES = ['fifo', 'fit', 'backfill', 'fair'] as const
const QUOTAS = {
  a: { quotaUnits: 2, quotaBorrow: 1 },
  b: { quotaUnits: 3, quotaBorrow: 2, shareWeight: 300 },
  c: { quotaWeek: 30_000 },
} as const
const KINDS = { a: { b: 1 }, c: { a: 2 } } as const

class Both {
  readonly state: State = createState()
  readonly model: PoolModel
  readonly #offer: number
  readonly tried = { granted: 0, queued: 0, preempted: 0, yields: 0, borrows: 0, reserved: 0 }

  constructor(rules: ModelRules) {
    this.state.index = 1
    this.model = new PoolModel(rules)
    const { preempt, accounts, kinds, ...rest } = rules
    const policy: PolicyRules = { ...rest, preempt: preempt ? 'marked' : 'none' }
    this.do({ kind: 'policy', prefix: POOL, rules: policy })
    for (const [name, own] of Object.entries(accounts)) this.do({ kind: 'policy', prefix: `${POOL}/accounts/${name}`, rules: own })
    for (const [name, own] of Object.entries(kinds))
      for (const [kind, quotaUnits] of Object.entries(own))
        this.do({ kind: 'policy', prefix: `${POOL}/kinds/${kind}/accounts/${name}`, rules: { quotaUnits } })
    const offer = this.do({ kind: 'acquire', holder: 'host', ttl: 60_000, wants: [] })
    assert(offer.kind === 'granted')
    this.#offer = offer.lease
  }

  do(command: Command): Outcome {
    return apply(this.state, { command }, { events: [], timer() {} })
  }

  offer(name: string, labels: Readonly<Record<string, string>>, units: number): void {
    this.do({ kind: 'put', lease: this.#offer, key: `pool/${POOL}/${name}`, value: JSON.stringify({ labels, units }) })
    this.model.offer({ name, labels, units })
  }

  withdraw(name: string): void {
    const outcome = this.do({ kind: 'delete', key: `pool/${POOL}/${name}` })
    if (outcome.kind === 'done') this.model.withdraw(name)
  }

  take(ask: Ask): void {
    const { priority, maxLife, from, expect: expected, match, ...request } = ask
    const outcome = this.do({
      ...{ kind: 'acquire', holder: ask.account, ttl: 60_000, wants: [], wait: true, priority },
      ...(maxLife > 0 && { maxLife }),
      pool: {
        ...{ pool: POOL, ...request },
        ...(match.length > 0 && { match }),
        ...(from > 0 && { from }),
        ...(expected > 0 && { expect: expected }),
      },
    })
    const isRefused = !this.model.isPossible(ask) || !this.model.mayEverHold(ask)
    if (outcome.kind === 'refused') {
      expect(isRefused || from > 0, outcome.reason).toBe(true)
      return
    }
    expect(isRefused).toBe(false)
    assert(outcome.kind === 'granted' || outcome.kind === 'queued')
    expect(this.model.take(outcome.lease, ask)).toBe(outcome.kind)
    this.tried[outcome.kind]++
    if (from > 0) this.tried.reserved++
  }

  leases(): LeaseState[] {
    return [...this.state.leases.values()].filter(({ extras }) => extras?.pool !== undefined)
  }

  /** The kernel's leases, in the words of the model. */
  picture(): string[] {
    return this.leases().map(({ id, status, extras, grants }) => {
      const { yields, borrows, notice } = extras!.pool!
      const pieces = grants.map(({ resource, units }) => `${resource.name.slice(POOL.length + 1)}*${units}`).sort()
      const word = status === WAITING ? 'waiting' : status === FROZEN ? 'frozen' : 'held'
      return `${id} ${word} ${pieces.join(' ')}${yields ? ' yields' : ''}${borrows ? ' borrows' : ''}${notice === 0 ? '' : ` for ${notice}`}`
    })
  }

  compare(what: string): void {
    expect(this.picture(), what).toEqual(this.model.picture())
    const pool = this.state.pools.get(POOL)
    const order = pool === undefined ? [] : serviceOrder(this.state, pool, Number.POSITIVE_INFINITY).map(({ id }) => id)
    expect(order, what).toEqual(this.model.queue())
    const positions = order.map(id => positionInPool(this.state, this.state.leases.get(id)!))
    expect(positions, what).toEqual([...order.keys()])
    for (const { extras } of this.leases()) {
      if (extras!.pool!.yields) this.tried.yields++
      if (extras!.pool!.borrows) this.tried.borrows++
      if (extras!.pool!.notice !== 0 || extras!.recalled) this.tried.preempted++
    }
  }

  /** A lease ends by its deadline: what is due of it. */
  due(lease: LeaseState): boolean {
    const slot = lease.status === FROZEN ? TERM : lease.extras!.timers?.[PREEMPT] ? PREEMPT : lease.extras!.timers?.[CAP] ? CAP : undefined
    if (slot === undefined || lease.status === WAITING) return false
    const epoch = slot === TERM ? lease.epoch : lease.extras!.timers![slot]!.epoch
    const outcome = this.do({ kind: 'due', timer: timerId(lease, slot), epoch })
    if (outcome.kind !== 'done') return false
    if (slot === TERM) this.model.release(lease.id)
    else this.model.freeze(lease.id)
    return true
  }
}

function run(queue: ModelRules['queue'], preempt: boolean, seed: number): Both['tried'] {
  const draw = random(seed)
  const rules: ModelRules = {
    ...{ queue, preempt, preemptNotice: [0, 500, 2_000][draw(3)]!, minHold: [0, 0, 1_000][draw(3)]! },
    ...{ aging: [0, 700][draw(2)]!, shareHalfLife: [4_000, 600_000][draw(2)]!, sharePenalty: [0, 300, 60_000][draw(3)]! },
    accounts: draw(2) === 0 ? {} : QUOTAS,
    kinds: draw(3) === 0 ? KINDS : {},
  }
  const both = new Both(rules)
  const member = () => both.offer(`m${draw(4)}`, { host: `h${draw(2)}`, ...(draw(3) > 0 && { model: ['a', 'b'][draw(2)]! }) }, 1 + draw(2))
  for (let i = 0; i < 4; i++) member()
  for (let step = 0; step < 160; step++) {
    const dice = draw(20)
    const leases = both.leases()
    const some = leases[draw(Math.max(1, leases.length))]
    let what = `${queue} ${preempt ? 'preempting' : ''} seed ${seed} step ${step}: `
    if (dice < 8 && leases.length < 14) {
      const size = draw(4) === 0 ? { total: 1 + draw(3) } : { count: 1 + draw(2), ...(draw(2) === 0 && { units: 1 }) }
      const isReservation = draw(12) === 0
      const ask: Ask = {
        ...{ account: ['a', 'b', 'c'][draw(3)]!, ...size, priority: draw(4) === 0 ? draw(3) - 1 : 0 },
        match: draw(3) === 0 ? [{ label: 'model', test: draw(3) === 0 ? 'absent' : 'in', values: [] }] : [],
        ...(draw(5) === 0 && { near: 'host' }),
        ...{ expect: isReservation || draw(2) === 0 ? 0 : 1 + draw(4_000), maxLife: isReservation || draw(3) === 0 ? 1 + draw(5_000) : 0 },
        ...{ preemptible: draw(2) === 0, from: isReservation ? 1 + draw(4_000) : 0 },
      }
      const match = ask.match.map(condition => (condition.test === 'in' ? { ...condition, values: [['a', 'b'][draw(2)]!] } : condition))
      what += `take ${JSON.stringify({ ...ask, match })}`
      both.take({ ...ask, match })
    } else if (dice < 12 && some !== undefined && some.status !== FROZEN) {
      what += `release ${some.id}`
      both.do({ kind: 'release', lease: some.id })
      both.model.release(some.id)
    } else if (dice < 15 && some !== undefined) what += `due ${some.id}: ${both.due(some)}`
    else if (dice < 16) {
      what += 'a member changes'
      if (draw(3) === 0) both.withdraw(`m${draw(4)}`)
      else member()
    } else {
      const ms = draw(40) === 0 ? 302_400_000 : 1 + draw(3_000)
      what += `${ms} ms pass`
      both.do({ kind: 'tick', n: both.state.tick + 1, elapsed: ms })
      both.model.tick(ms)
    }
    both.compare(what)
  }
  return both.tried
}

describe.each(QUEUES)('in a queue of kind %s', { timeout: 900_000 }, queue => {
  test.each([false, true])('with preemption %s, every grant, loan, notice and place is as the model says', preempt => {
    const tried = { granted: 0, queued: 0, preempted: 0, yields: 0, borrows: 0, reserved: 0 }
    for (let seed = 1; seed <= SEEDS; seed++)
      for (const [what, times] of Object.entries(run(queue, preempt, seed))) tried[what as keyof typeof tried] += times
    const least = { ...tried, preempted: preempt ? 1 : 0, yields: queue === 'backfill' ? 1 : 0 }
    for (const [what, times] of Object.entries(tried)) expect(times, what).toBeGreaterThanOrEqual(Math.min(1, least[what as 'granted']))
  })
})
