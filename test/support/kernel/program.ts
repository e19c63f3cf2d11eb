/**
 * Random programs of commands: many holders, each of which is a process that may be replaced, on names and on a pool, with everything that a lease can have or
 * undergo. Each step is applied to the kernel and to the naive model, and all leases, entries, terms, notices, shares and learned durations are compared.
 */
import { strict as assert } from 'node:assert'
import { expect } from 'vitest'
import type { Acquire, PoolCondition } from '../../../src/kernel/command.ts'
import type { Outcome } from '../../../src/kernel/outcome.ts'
import { usageOf } from '../../../src/kernel/rule/pool/account.ts'
import { timerId, timerOf } from '../../../src/kernel/state/timers.ts'
import { BREAK, CAP, PREEMPT, type Slot, TERM } from '../../../src/kernel/state.ts'
import { shortest } from '../shortest.ts'
import { check } from './invariant.ts'
import type { Ask } from './pool-model.ts'
import { featuresOf, isSession, type Marks, Pairs, type ProgramFeature } from './program-features.ts'
import { type ModelLease, type ModelRequest, POOL, ProgramModel, type ProgramRules, type Wish } from './program-model.ts'
import { durations, kernelPicture, learned, modelPicture } from './program-picture.ts'
import { CAPACITY, LOCK_DELAYS, MEMBERS, NAMES, type Program, type Step, type StepOf, TTL_MAX } from './program-steps.ts'
import { reload, World } from './world.ts'

export interface ProgramReport {
  readonly pairs: Pairs
  /** Each step had each answer this many times. */
  readonly answers: Map<string, number>
}

export function newReport(): ProgramReport {
  return { pairs: new Pairs(), answers: new Map() }
}

/** Plays a program. If the kernel does anything else than the model, it throws, with a short program that fails. */
export async function play({ steps, ...rules }: Program, report: ProgramReport): Promise<void> {
  const failure = (list: readonly Step[], into: ProgramReport): unknown => {
    try {
      return void playSteps({ ...rules, steps: list }, into)
    } catch (error) {
      return error
    }
  }
  if (failure(steps, report) === undefined) return
  const short = await shortest(steps, list => failure(list, newReport()) !== undefined)
  const cause = failure(short, newReport())
  throw new Error(
    `a short program that fails:\n${JSON.stringify(rules)}\n${short.map(step => JSON.stringify(step)).join('\n')}\n${cause}`,
    { cause },
  )
}

function playSteps({ steps, ...rules }: Program, report: ProgramReport): void {
  const player = new Player(rules, report)
  for (const [i, next] of steps.entries()) player.play(next, () => `step ${i}: ${JSON.stringify(next)}`)
  player.check()
}

function word(outcome: Outcome): string {
  return outcome.kind === 'refused' ? outcome.code : outcome.kind
}

/** The steps that ask for a lease. */
type Asking = StepOf<'acquire' | 'any' | 'permits' | 'covers' | 'take' | 'reserve'>

class Player {
  readonly world = new World({ strict: false })
  readonly model: ProgramModel
  readonly #report: ProgramReport
  readonly #marks: Marks = new Map()
  /** The incarnation of the process that each holder is now. */
  readonly #processes = new Map<string, number>()
  readonly #isCrowded: boolean
  #brought = 0

  constructor({ pool, isCrowded }: Omit<Program, 'steps'>, report: ProgramReport) {
    this.#report = report
    this.#isCrowded = isCrowded
    const { preempt, accounts, kinds, ...rest } = pool
    const { world } = this
    world.policy('', { lockDelay: 0 })
    for (const [name, lockDelay] of Object.entries(LOCK_DELAYS)) world.policy(name, { lockDelay })
    world.policy('seats', { capacity: CAPACITY.seats })
    world.policy('q', { quota: 2 })
    world.policy('e', { ttlMax: TTL_MAX })
    world.policy(POOL, { ...rest, preempt: preempt ? 'marked' : 'none' })
    for (const [name, own] of Object.entries(accounts)) world.policy(`${POOL}/accounts/${name}`, own)
    for (const [name, own] of Object.entries(kinds))
      for (const [kind, quotaUnits] of Object.entries(own)) world.policy(`${POOL}/kinds/${kind}/accounts/${name}`, { quotaUnits })
    const offers = MEMBERS.map((name, i) => ({
      key: `pool/${POOL}/${name}`,
      value: JSON.stringify({ labels: labelsOf(i), units: unitsOf(i) }),
    }))
    const host = world.do({ kind: 'acquire', holder: 'host', ttl: 60_000, wants: [], entries: offers })
    assert(host.kind === 'granted')
    const rules: ProgramRules = {
      ...{ capacity: CAPACITY, lockDelay: LOCK_DELAYS, quota: { kind: 'q', most: 2 }, ttlMax: { kind: 'e', most: TTL_MAX }, pool },
    }
    const { nextLease, longest } = world.state
    this.model = new ProgramModel(rules, { nextLease, longest })
    for (const [i, name] of MEMBERS.entries()) this.model.pool.offer({ name, labels: labelsOf(i), units: unitsOf(i) })
    // At log time 0 a lease of members looks as if it had not been granted yet.
    this.#tick(1)
  }

  play(step: Step, where: () => string): void {
    const borrowed = this.#borrowers()
    const [said, expected] = this.#do(step)
    if (said !== expected) expect(said, where()).toBe(expected)
    this.#compare(where)
    for (const lease of this.#borrowers()) if (!borrowed.includes(lease)) this.#report.pairs.add(this.#around(lease), ['borrowed'])
    const key = `${step.do} ${said}`
    this.#report.answers.set(key, (this.#report.answers.get(key) ?? 0) + 1)
  }

  #borrowers(): ModelLease[] {
    return this.model.leases.filter(({ id }) => this.model.pool.leases.some(claim => claim.id === id && claim.borrows))
  }

  // Steps

  #do(step: Step): [string | number, string | number] {
    switch (step.do) {
      case 'acquire':
      case 'any':
      case 'permits':
      case 'covers':
      case 'take':
      case 'reserve':
        return this.#acquire(step)
      case 'renew':
        return this.#renew(step)
      case 'claim':
        return this.#claim(step)
      case 'widen':
        return this.#widen(step)
      case 'transfer':
        return this.#transfer(step)
      case 'release':
      case 'release one':
      case 'abort':
        return this.#release(step)
      case 'due':
      case 'age':
        return this.#timer(step)
      case 'extend':
      case 'revoke':
      case 'break':
        return this.#operate(step)
      case 'put':
      case 'delete':
        return this.#entry(step)
      case 'tick':
        this.#tick(step.ms)
        return ['', '']
      case 'restart':
        this.#restart()
        return ['', '']
      case 'replace':
        // A process of this name dies without a word, and another one starts.
        this.#processes.delete(step.holder)
        return ['', '']
    }
  }

  #acquire(step: Asking): [string, string] {
    const request = this.#request(step)
    const { pool, wishes: list, entries: brought, work, holder: name } = request
    const incarnation = this.#processes.get(name)
    const process = incarnation === undefined ? {} : { incarnation }
    const { nextLease } = this.model
    const before = this.#sameResources(request)
    const { match = [], from = 0, expect: expected = 0, priority: _, maxLife: __, ...ask } = pool ?? ({} as Partial<Ask>)
    const command: Acquire = {
      ...{ kind: 'acquire', holder: name, ttl: request.ttl, ...process },
      wants: list.map(({ resource, units, shared }) => (shared ? { resource, shared } : { resource, units })),
      ...given(request, ['any', 'permits', 'covers', 'holding', 'wait', 'priority', 'parent', 'grace', 'maxLife', 'steal']),
      ...(brought !== undefined && { entries: brought }),
      ...(work !== undefined && { labels: [['learn', work] as const] }),
      ...(pool !== undefined && {
        pool: {
          pool: POOL,
          ...ask,
          ...(match.length > 0 && { match }),
          ...(from > 0 && { from }),
          ...(expected > 0 && { expect: expected }),
        },
      }),
    }
    const outcome = this.world.do(command)
    const said = word(outcome)
    const answer = this.model.acquire({ ...request, ...process }, said !== 'HELD')
    if (outcome.kind === 'granted' || outcome.kind === 'queued') {
      if (incarnation === undefined) this.#processes.set(name, outcome.incarnation)
      if (request.steal !== undefined) this.#mark(nextLease, 'steal')
      if (request.wait !== true) this.#mark(nextLease, 'no-wait')
    }
    const parents = this.model.find(request.parent ?? 0)
    this.#report.pairs.add([...before, ...(parents === undefined ? [] : this.#features(parents))], this.#acting(request))
    return [said, answer]
  }

  #request(step: Asking): ModelRequest {
    const { holder: name, ttl: term, maxLife } = step
    if (step.do === 'reserve') {
      const ask = {
        ...sizeOf(step.size),
        match: [],
        account: name,
        priority: 0,
        expect: 0,
        maxLife,
        preemptible: step.preemptible,
        from: step.from,
      }
      return { holder: name, ttl: term, wishes: [], wait: true, maxLife, pool: ask }
    }
    const { priority, grace, parent } = step
    const rest = {
      ...{ holder: name, ttl: term },
      ...(priority !== 0 && { priority }),
      ...(grace > 0 && { grace }),
      ...(maxLife > 0 && { maxLife }),
      ...(parent !== null && { parent: this.#idOfHeld(parent) }),
      ...(step.wait && { wait: true }),
    }
    if (step.isNew) this.#processes.delete(name)
    if (step.do === 'take') {
      const match: PoolCondition[] = step.model === '' ? [] : [{ label: 'model', test: 'in', values: [step.model] }]
      const ask = {
        ...{ ...sizeOf(step.size), account: name, match, priority, expect: step.expect, maxLife, preemptible: step.preemptible, from: 0 },
        ...(step.near && { near: 'host' }),
      }
      const brought = step.brings ? { entries: [{ key: `job/${++this.#brought}`, value: 'v' }] } : {}
      return { ...rest, wishes: [], pool: ask, ...brought, ...(step.learns && { work: 'g/job' }) }
    }
    const attached = step.entries === null ? {} : { entries: [{ key: step.entries, value: name }] }
    if (step.do === 'any') return { ...rest, wishes: step.names.map(lock), any: step.any, ...attached }
    if (step.do === 'permits') {
      const names = this.#isCrowded ? ['y'] : step.names
      return {
        ...rest,
        wishes: names.map(resource => ({ resource, units: step.units, shared: false })),
        permits: step.permits,
        ...attached,
      }
    }
    const { wait: _, ...now } = rest
    if (step.do === 'covers') {
      const list = step.names.map(resource => ({ resource, units: 1, shared: step.shared }))
      const own = this.model.leases.filter(({ holder: owner, status }) => owner === name && (status === 'live' || status === 'suspect'))
      const how = step.keeps ? { ...now, holding: own.map(({ id }) => id) } : rest
      return { ...how, wishes: list, covers: true, ...attached, ...(step.steal !== '' && { steal: step.steal as 'after', wait: true }) }
    }
    const isLock = step.wishes.length > 0 && step.wishes[0]!.resource !== 'seats'
    const list = this.#isCrowded && isLock ? [{ ...step.wishes[0]!, resource: 'y' }] : step.wishes
    return {
      ...{ ...(list.length === 0 ? now : rest), wishes: list, ...attached },
      ...(step.steal !== '' && isLock && { steal: step.steal as 'after' | 'force', wait: true }),
      ...(step.learns && list.length > 0 && { work: list[0]!.resource.split('/')[0]! }),
    }
  }

  #renew({ lease: n, ttl: longer, waiting }: StepOf<'renew'>): [number, number] {
    const id = this.#id(n)
    if (longer > 0) this.#pair(id, ['renew-with-ttl'])
    const before = this.model.find(id)?.ttl
    const outcome = this.world.do({ kind: 'renew', leases: [id], ...(longer > 0 && { ttl: longer }), ...(waiting && { waiting }) })
    const expected = this.model.renew(id, { ttl: longer, waiting })
    if (before !== undefined && (this.model.find(id)?.ttl ?? 0) > before) this.#mark(id, 'renew-with-ttl')
    return [(outcome as { ttls: readonly number[] }).ttls[0]!, expected]
  }

  #claim({ lease: n, open }: StepOf<'claim'>): [string, string] {
    const id = this.#idOf(n, lease => !open || lease.open)
    const incarnation = this.#processes.get(this.model.find(id)?.holder ?? '')
    this.#pair(id, ['adopt-by-name'])
    const outcome = this.world.do({ kind: 'claim', lease: id, ...(incarnation !== undefined && { incarnation }) })
    const answer = this.model.claim(id, incarnation)
    if (answer === 'done') this.#mark(id, 'adopt-by-name')
    return [word(outcome), answer]
  }

  #widen({ lease: n, names }: StepOf<'widen'>): [string, string] {
    const id = this.#idOf(n, lease => lease.any > 0)
    this.#pair(id, ['widen'])
    const outcome = this.world.do({ kind: 'widen', lease: id, wants: names.map(resource => ({ resource })) })
    const answer = this.model.widen(id, names.map(lock))
    if (answer === 'done' && this.model.find(id) !== undefined) this.#mark(id, 'widen')
    return [word(outcome), answer]
  }

  /** Mostly to a holder that waits for something. */
  #transfer({ lease: n, to, request, stopped, known }: StepOf<'transfer'>): [string, string] {
    const id = this.#idOf(n, lease => lease.status === 'live' && this.model.held(lease).length > 0)
    const waiters = this.model.leases.filter(({ status, wishes: list }) => status === 'waiting' && list.length > 0)
    const near = waiters.filter(({ wishes: list }) => {
      const giver = this.model.find(id)
      return giver !== undefined && this.model.held(giver).some(({ resource }) => list.some(wish => wish.resource === resource))
    })
    const meant = to === null ? [...near, ...waiters][request % Math.max(1, near.length || waiters.length)] : undefined
    const name: string = to ?? meant?.holder ?? 'a'
    const incarnation = known ? (meant?.incarnation ?? this.#processes.get(name)) : undefined
    const more = { stopped, ...(incarnation !== undefined && { incarnation }) }
    this.#pair(id, ['transfer'])
    if (meant !== undefined && near.includes(meant)) this.#pair(meant.id, ['transfer'])
    const { stopped: _, ...process } = more
    const outcome = this.world.do({ kind: 'transfer', lease: id, to: name, ...process, ...(stopped && { stopped }) })
    const answer = this.model.transfer(id, name, more)
    if (outcome.kind === 'done')
      this.#marks.set(outcome.id!, new Set([...(this.#marks.get(outcome.id!) ?? []), ...(this.#marks.get(id) ?? [])]))
    return [word(outcome), answer]
  }

  #release(step: StepOf<'release'> | StepOf<'release one'> | StepOf<'abort'>): [string, string] {
    if (step.do === 'abort') {
      const id = this.#idOf(step.lease, ({ status }) => status === 'waiting')
      this.#pair(id, ['abort'])
      return [word(this.world.release(id)), this.model.release(id)]
    }
    if (step.do === 'release one') {
      const id = this.#idOf(step.lease, lease => this.model.held(lease).length > 0)
      const lease = this.model.find(id)
      const held = lease === undefined ? [] : this.model.held(lease)
      const resource = held[step.at % Math.max(1, held.length)]?.resource ?? 'x'
      this.#pair(id, ['partial-release'])
      this.#mark(id, 'partial-release')
      return [word(this.world.release(id, resource)), this.model.release(id, { resource })]
    }
    const id = this.#id(step.lease)
    this.#pair(id, [])
    const stopped = step.stopped ? this.#descendants(id) : []
    const { lost } = step
    const outcome = this.world.do({
      kind: 'release',
      lease: id,
      ...(stopped.length > 0 && { stopped }),
      ...(lost && { lost: 'unreachable' }),
    })
    return [word(outcome), this.model.release(id, { stopped, lost })]
  }

  #descendants(id: number): number[] {
    return this.model.leases.filter(({ parent }) => parent === id).flatMap(child => [child.id, ...this.#descendants(child.id)])
  }

  #timer(step: StepOf<'due'> | StepOf<'age'>): [string, string] {
    const slot: Slot = step.slot
    const runs = ({ id, status }: ModelLease) =>
      slot === TERM ? status === 'live' || status === 'suspect' : timerOf(this.world.lease(id)!, slot) !== undefined
    const id = this.#idOf(step.lease, runs)
    const lease = this.world.lease(id)
    const timer = lease && timerOf(lease, slot)
    if (lease === undefined || timer === undefined) return ['', '']
    if (step.do === 'age') {
      this.world.do({ kind: 'aged', marks: [{ timer: timerId(lease, slot), epoch: timer.epoch, ms: step.ms }] })
      this.model.age(id, slot === CAP ? 'cap' : slot === BREAK ? 'break' : 'notice', step.ms)
      return ['', '']
    }
    const model = this.model.find(id)!
    const features = this.#around(model)
    if (slot === TERM) this.#pair(id, [])
    this.#report.pairs.add(features, slot === CAP ? ['cap'] : slot === BREAK ? ['break'] : slot === PREEMPT ? ['preemptible'] : [])
    const said = word(this.world.do({ kind: 'due', timer: timerId(lease, slot), epoch: timer.epoch }))
    const before = model.status
    const answer = slot === TERM ? this.model.termDue(id) : this.model.limitDue(id, slot === PREEMPT)
    if (slot === TERM && model.status === 'suspect') this.#report.pairs.add(features, ['grace'])
    if (slot === TERM && model.status === 'frozen' && before !== 'frozen') {
      this.#mark(id, 'lock-delay')
      this.#report.pairs.add(features, ['lock-delay'])
    }
    if (slot === BREAK && model.status === 'frozen') this.#mark(id, 'break')
    return [said, answer]
  }

  #operate(step: StepOf<'extend'> | StepOf<'revoke'> | StepOf<'break'>): [string, string] {
    if (step.do === 'extend') {
      const id = this.#idOf(step.lease, lease => lease.isPool && lease.cap !== undefined)
      this.#pair(id, ['extend'])
      const said = word(this.world.do({ kind: 'extend', lease: id, by: step.by }))
      const answer = this.model.extend(id, step.by)
      if (answer === 'done') this.#mark(id, 'extend')
      return [said, answer]
    }
    if (step.do === 'break') {
      const id = this.#idOf(step.lease, lease => this.model.held(lease).length > 0)
      const lease = this.model.find(id)
      const held = lease === undefined ? [] : this.model.held(lease)
      const resource = held[step.at % Math.max(1, held.length)]?.resource ?? 'x'
      const others = this.model.leases.filter(other => this.model.held(other).some(has => has.resource === resource))
      for (const other of others) this.#pair(other.id, ['break'])
      const said = word(this.world.do({ kind: 'break', resource, ...(step.after > 0 && { after: step.after }), by: 'ops' }))
      return [said, this.model.break(resource, step.after)]
    }
    const lease = this.#id(step.lease)
    const there = this.model.find(lease)
    const ids = step.all && there ? this.model.leases.filter(other => other.holder === there.holder).map(({ id }) => id) : [lease]
    for (const id of ids) this.#pair(id, ['revoke'])
    const target = step.all && there ? { holder: there.holder } : { lease }
    const said = word(this.world.do({ kind: 'revoke', target, force: step.force }))
    const answer = there === undefined ? 'GONE' : this.model.revoke(ids, step.force)
    for (const id of ids) if (this.model.find(id)?.status === 'frozen') this.#mark(id, 'revoke')
    return [said, answer]
  }

  #entry(step: StepOf<'put'> | StepOf<'delete'>): [string, string] {
    if (step.do === 'put') {
      const id = this.#id(step.lease)
      this.#pair(id, ['entries'])
      return [word(this.world.do({ kind: 'put', lease: id, key: step.key, value: 'v' })), this.model.put(id, step.key, 'v')]
    }
    const lease = step.lease === null ? undefined : this.#id(step.lease)
    const said = word(this.world.do({ kind: 'delete', key: step.key, ...(lease !== undefined && { lease }) }))
    return [said, this.model.delete(step.key, lease)]
  }

  #tick(ms: number): void {
    this.world.state.wall += ms
    this.world.do({ kind: 'tick', n: this.world.state.tick + 1, elapsed: ms })
    this.model.tick(ms)
  }

  /** A replica starts from a snapshot. */
  #restart(): void {
    for (const { id } of this.model.leases) {
      this.#pair(id, ['restart'])
      this.#mark(id, 'restart')
    }
    this.world.state = reload(this.world.state)
  }

  // Leases

  /** Mostly of a lease that is there, and fits. */
  #idOf(n: number, fits: (lease: ModelLease) => boolean): number {
    const fitting = n % 8 === 0 ? [] : this.model.leases.filter(fits)
    return fitting.length === 0 ? this.#id(n) : fitting[n % fitting.length]!.id
  }

  /** Mostly of a lease that is there; otherwise of one that has ended. */
  #id(n: number): number {
    const { leases, nextLease } = this.model
    if (leases.length === 0 || n % 10 === 0) return 2 + (n % Math.max(1, nextLease - 2))
    return leases[n % leases.length]!.id
  }

  #idOfHeld(n: number): number {
    return this.#idOf(n, ({ status }) => status === 'live' || status === 'suspect')
  }

  // Pairs

  #mark(id: number, feature: ProgramFeature): void {
    this.#marks.set(id, (this.#marks.get(id) ?? new Set<ProgramFeature>()).add(feature))
  }

  #features(lease: ModelLease): Set<ProgramFeature> {
    return featuresOf(this.model, lease, this.#marks)
  }

  #pair(id: number, acts: readonly ProgramFeature[]): void {
    const lease = this.model.find(id)
    if (lease === undefined) return
    const ends = acts.includes('revoke') || acts.length === 0
    const session: readonly ProgramFeature[] = ends && isSession(this.model, id) ? ['session'] : []
    this.#report.pairs.add(this.#around(lease), [...acts, ...session])
  }

  /** Returns what is in force on a lease, on those under it and on those for the same resources. */
  #around(lease: ModelLease): Set<ProgramFeature> {
    const named = [...this.model.held(lease), ...lease.wishes]
    const isNear = (other: ModelLease) =>
      other === lease ||
      other.parent === lease.id ||
      (other.isPool && lease.isPool) ||
      [...this.model.held(other), ...other.wishes].some(({ resource }) => named.some(one => one.resource === resource))
    return new Set(this.model.leases.filter(isNear).flatMap(other => [...this.#features(other)]))
  }

  /** Returns what is in force on the resources that a request names. */
  #sameResources({ wishes: list, pool, entries: brought = [] }: ModelRequest): Set<ProgramFeature> {
    const isSame = (lease: ModelLease) =>
      (pool !== undefined && lease.isPool) ||
      [...this.model.held(lease), ...lease.wishes].some(({ resource }) => list.some(wish => wish.resource === resource)) ||
      this.model.entries.some(({ key, lease: on }) => on === lease.id && brought.some(entry => entry.key === key))
    return new Set(this.model.leases.filter(isSame).flatMap(lease => [...this.#features(lease)]))
  }

  #acting(request: ModelRequest): Set<ProgramFeature> {
    const { wishes: list, pool, any, permits, covers, steal, wait = false, parent, entries: brought, grace, maxLife, work } = request
    const found: (ProgramFeature | false)[] = [
      wait ? 'wait' : 'no-wait',
      any !== undefined && 'any',
      permits !== undefined && 'permits',
      covers !== undefined && 'covers',
      (list.some(({ units }) => units > 1) || (pool?.total ?? 0) > 1) && 'units',
      list.some(({ shared }) => shared) && 'shared',
      parent !== undefined && 'parent',
      (isSession(this.model, parent ?? 0) || (list.length === 0 && pool === undefined)) && 'session',
      brought !== undefined && 'entries',
      pool !== undefined && 'pool-member',
      (pool?.from ?? 0) > 0 && 'reservation',
      pool?.preemptible === true && 'preemptible',
      list.some(({ resource }) => resource.startsWith('q/')) && 'quota',
      steal !== undefined && 'steal',
      grace !== undefined && 'grace',
      maxLife !== undefined && 'cap',
      work !== undefined && 'learned-term',
    ]
    return new Set(found.filter(feature => feature !== false))
  }

  // Comparison

  #compare(where: () => string): void {
    const { world, model } = this
    const { state } = world
    const leases = [...state.leases.values()].filter(({ holder: owner }) => owner.name !== 'host')
    const there = [...state.entries.values()].filter(({ key }) => !key.startsWith('pool/'))
    const pool = state.pools.get(POOL)!
    const usage = [...pool.accounts.values()].map(account => [account.name, usageOf(state, pool, account)] as const)
    const kernelSays = [
      ...leases.map(kernelPicture),
      ...there.map(({ key, value, lease }) => `${key}=${value}@${lease.id}`).sort(),
      ...NAMES.map(name => `${name} is waited for by ${(state.resources.get(name)?.queue ?? []).map(({ id }) => id)}`),
      `the longest term is ${state.longest}`,
      `usage: ${usage
        .filter(([, used]) => used !== 0)
        .map(String)
        .sort()}`,
      ...durations(state.durations),
    ]
    const modelSays = [
      ...model.leases.map(lease => modelPicture(model, lease)),
      ...model.entries.map(({ key, value, lease }) => `${key}=${value}@${lease}`).sort(),
      ...NAMES.map(name => `${name} is waited for by ${model.queue(name)}`),
      `the longest term is ${model.longest}`,
      `usage: ${Object.entries(model.pool.usage())
        .filter(([, used]) => used !== 0)
        .map(String)
        .sort()}`,
      ...durations(learned(model)),
    ]
    // Compared first without `expect`, which takes most of the time.
    if (kernelSays.join() !== modelSays.join()) expect(kernelSays, where()).toEqual(modelSays)
  }

  /** All invariants of the state: for the end of a program. */
  check(): void {
    check(this.world.state)
  }
}

function labelsOf(i: number): Record<string, string> {
  return { host: `h${i % 2}`, model: i === 0 ? 'a' : 'b' }
}

function unitsOf(i: number): number {
  return 1 + (i % 2)
}

function lock(resource: string): Wish {
  return { resource, units: 1, shared: false }
}

function sizeOf(size: { count: number; units: number } | { total: number }): Pick<Ask, 'count' | 'units' | 'total'> {
  return 'total' in size ? size : { count: size.count, ...(size.units > 0 && { units: size.units }) }
}

function given<T extends object, K extends keyof T>(from: T, keys: readonly K[]): Partial<Pick<T, K>> {
  return Object.fromEntries(keys.filter(key => from[key] !== undefined).map(key => [key, from[key]])) as Partial<Pick<T, K>>
}
