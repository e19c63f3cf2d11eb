/**
 * Corrected mistakes that a random world hardly meets, one short scene for each. The scenes follow each other in a world in which nothing fails by itself. The
 * referee judges them as it judges every world; where it cannot, the scene says what must be so.
 */
import { LeaseError } from '../src/errors.ts'
import type { Acquire, Command } from '../src/kernel/command.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { findLease } from '../src/kernel/state/leases.ts'
import { LIVE } from '../src/kernel/state.ts'
import { Leases } from '../src/leases.ts'
import type { Completion, ProposeOptions } from '../src/lessor.ts'
import type { Replica } from '../src/replica/replica.ts'
import { acquire, LONG, leaseOf, type Scene } from './case-steps.ts'
import type { Crew } from './directed-crew.ts'
import { Held } from './holder.ts'
import { FACE_NAME } from './mixed-wishes.ts'
import { Host, HostLessor } from './participants.ts'
import {
  givenBack,
  noticeOfTransferred,
  offer,
  passedOnUnderNotice,
  quotaOfKind,
  renewedReservation,
  weekUsedUp,
  withoutWaiting,
} from './pool-cases.ts'
import type { ReplicatedLog } from './replicated-log.ts'

const SCENES: readonly Scene[] = [
  restoredLog,
  crew => givenBack(crew, 0),
  crew => givenBack(crew, 1),
  releasedUnderFace,
  ...(['fifo', 'fit', 'backfill', 'fair'] as const).map(queue => (crew: Crew) => withoutWaiting(crew, queue)),
  lengthenedEntry,
  orphan,
  secondThread,
  undoneAnswer,
  crew => lostLengthening(crew, true),
  crew => lostLengthening(crew, false),
  passedOnUnderNotice,
  noticeOfTransferred,
  keyLimit,
  identityAfterRestore,
  lateAnswer,
  coveredNames,
  coveringWaiter,
  keptClaims,
  unreadLoss,
  valueWithLock,
  quotaOfKind,
  weekUsedUp,
  // The elector writes records that are no renewals, all the time.
  crew => crew.withoutElector(() => passedRenewals(crew)),
  renewedReservation,
]

/** Seed 1 plays all scenes, each later seed one of them in turn: a planted mistake is found sooner in the scene that shows it. */
export async function playCases(crew: Crew, seed: number): Promise<void> {
  await crew.start()
  const { referee } = crew.site
  for (const [i, scene] of SCENES.entries()) {
    if (seed > 1 && (seed - 2) % SCENES.length !== i) continue
    crew.site.world.note(`scene ${i}`)
    await scene(crew)
    const face = await crew.faceLease()
    const left = () => [...referee.state.leases.values()].filter(({ id }) => id !== face)
    await crew.until('all leases of a scene have ended', () => left().length === 0 && referee.state.quiet === undefined)
  }
}

interface HoldOptions {
  /** The answer takes this many ms. */
  readonly late?: number
  /** The host that proposes the request. Any, unless given. */
  readonly by?: Host
}

/** A holder that uses its lease until its term is over. Undefined: it is not granted. */
async function hold(crew: Crew, request: Partial<Acquire>, { late = 0, by }: HoldOptions = {}): Promise<Held | undefined> {
  const { world, referee } = crew.site
  const held = new Held(request.holder ?? 'other', crew.clock)
  const sent = held.mark(world.now)
  const outcome = await acquire(by ?? crew, request)
  if (outcome.kind !== 'granted') return undefined
  if (late > 0) await crew.pause(late)
  held.lease = outcome.lease
  held.covers = request.covers === true
  held.grants = outcome.resources.map((resource, i) => ({ resource, units: 1, shared: false, token: outcome.tokens[i]! }))
  referee.terms.acknowledged(outcome.lease, sent.world, outcome.ttl)
  held.believe(sent, outcome.ttl)
  referee.beliefs.begins(held)
  return held
}

/** A lease that was granted after the backup is longer than any that the backup knows: the restored log grants nothing until it is over. */
async function restoredLog(crew: Crew): Promise<void> {
  const backup = (await crew.changes.backup())!
  await hold(crew, { holder: 'after the backup', ttl: LONG, wants: [{ resource: 'x/restored' }] })
  await crew.changes.restore(backup)
  for (let i = 0; i < 20; i++) {
    if ((await hold(crew, { holder: 'restored', wants: [{ resource: 'x/restored' }] })) !== undefined) return
    await crew.pause(LONG / 10)
  }
}

/** The answer to a request takes long: its holder counts from before the request, so that the lease of the next one begins later. */
async function lateAnswer(crew: Crew): Promise<void> {
  const wants = [{ resource: 'x/late' }]
  await hold(crew, { holder: 'late', wants }, { late: 700 })
  for (let i = 0; i < 40; i++) {
    if ((await hold(crew, { holder: 'next', wants })) !== undefined) return
    await crew.pause(50)
  }
}

/** The log loses its last records, of which the only survivor has read the first. What is granted afterwards has other numbers than the leases in those that it has not read. */
async function unreadLoss(crew: Crew): Promise<void> {
  const { referee, world, log, wire } = crew.site
  const [survivor, other] = crew.hosts as readonly [Host, Host]
  const wants = [{ resource: 'x/unread' }]
  await leaseOf(crew, { holder: 'long', ttl: LONG, wants: [{ resource: 'x/long' }] })
  const { length } = referee
  await crew.propose({ kind: 'policy', prefix: 'unused', rules: { capacity: 2 } })
  const isRead = () => crew.hosts.every(({ replica }) => replica?.index === referee.length)
  await crew.until('both replicas have read the log', isRead)
  wire.deaf.add(survivor.machine)
  // A generation begins one above the numbers that were read.
  await acquire(other, { holder: 'unread', wants: [{ resource: 'x/another' }] })
  await hold(crew, { holder: 'unread', wants }, { by: other })
  other.crash()
  const count = referee.length - length
  world.fault(`the log loses its last ${count} records`)
  log.loseTail(count)
  referee.lose(count)
  wire.deaf.delete(survivor.machine)
  await crew.until('the survivor has begun a generation', () => !referee.awaitsGeneration)
  other.machine.revive()
  void other.start()
  for (let i = 0; i < 20; i++) {
    if ((await hold(crew, { holder: 'next', wants })) !== undefined) return
    await crew.pause(LONG / 10)
  }
}

/** The renewal that gave a lease a longer ttl is lost, and so is the answer to the next one, if there is one: the lease stays for as long as its holder relies on it. */
async function lostLengthening(crew: Crew, renewsAgain: boolean): Promise<void> {
  const { world, referee } = crew.site
  const held = (await hold(crew, { holder: 'lengthened', wants: [{ resource: 'x/lengthened' }] }))!
  const backup = (await crew.changes.backup())!
  const sent = held.mark(world.now)
  const renewed = await crew.propose({ kind: 'renew', leases: [held.lease], ttl: LONG })
  if (renewed.kind !== 'renewed' || renewed.ttls[0] !== LONG) throw new Error(`a scene was refused: ${JSON.stringify(renewed)}`)
  referee.terms.acknowledged(held.lease, sent.world, LONG)
  held.believe(sent, LONG)
  await crew.changes.restore(backup)
  if (renewsAgain) await crew.propose({ kind: 'renew', leases: [held.lease] })
  await crew.pause(LONG)
}

/** Names above and below a covering claim are used by one holder at a time, in both orders. */
async function coveredNames(crew: Crew): Promise<void> {
  const requests: readonly Partial<Acquire>[] = [
    { holder: 'covering', wants: [{ resource: 'x/tree' }], covers: true },
    { holder: 'below', wants: [{ resource: 'x/tree/a/b' }] },
    { holder: 'covering below', wants: [{ resource: 'x/tree/a' }], covers: true },
  ]
  for (const first of requests)
    for (const second of requests) {
      await hold(crew, first)
      await hold(crew, second)
      await crew.pause(1_100)
    }
  const shared = (resource: string) => [{ resource, shared: true }]
  await leaseOf(crew, { holder: 'sharing', wants: shared('x/tree'), covers: true })
  const beside = await acquire(crew, { holder: 'beside', wants: shared('x/tree/a') })
  if (beside.kind !== 'granted') crew.site.world.violate('L1', `a shared claim is refused below a shared one: ${JSON.stringify(beside)}`)
  await hold(crew, { holder: 'exclusive', wants: [{ resource: 'x/tree/b' }] })
}

/** A covering waiter is granted as soon as all below its name is free, and is not overtaken by younger requests. The referee judges that. */
async function coveringWaiter(crew: Crew): Promise<void> {
  const { referee } = crew.site
  const below = await leaseOf(crew, { holder: 'below', ttl: LONG, wants: [{ resource: 'x/queue/a' }] })
  const waiter = await leaseOf(crew, { holder: 'covering', ttl: LONG, wants: [{ resource: 'x/queue' }], covers: true, wait: true })
  const behind = await leaseOf(crew, { holder: 'behind', ttl: LONG, wants: [{ resource: 'x/queue/b' }], wait: true })
  const last = await leaseOf(crew, { holder: 'last', ttl: LONG, wants: [{ resource: 'x/queue/c' }], covers: true, wait: true })
  for (const lease of [below, waiter, behind, last]) {
    referee.givenUp.add(lease)
    await crew.propose({ kind: 'release', lease })
  }
}

/** A claim that a client keeps is no obstacle for its own covering claim, closes no cycle unseen, and is not passed on to another client with it. */
async function keptClaims(crew: Crew): Promise<void> {
  const { referee } = crew.site
  const [own, other] = [
    await leaseOf(crew, { holder: 'keeper', ttl: LONG, wants: [{ resource: 'x/kept/a' }] }),
    await leaseOf(crew, { holder: 'other', ttl: LONG, wants: [{ resource: 'x/kept/b' }] }),
  ]
  const wants = [{ resource: 'x/kept' }]
  const cover = await leaseOf(crew, { holder: 'keeper', ttl: LONG, wants, covers: true, wait: true, holding: [own] })
  await acquire(crew, { holder: 'other', wants, covers: true, wait: true, holding: [other] })
  referee.givenUp.add(other)
  await crew.propose({ kind: 'release', lease: other })
  const passed = await crew.propose({ kind: 'transfer', lease: cover, to: 'heir', stopped: true })
  for (const lease of [own, ...(passed.kind === 'done' ? [passed.id!] : [])]) {
    referee.givenUp.add(lease)
    await crew.propose({ kind: 'release', lease })
  }
}

/** Leases, waiters and entries that a key has no more do not count against its limit: a waiter that went away makes room for another. */
async function keyLimit(crew: Crew): Promise<void> {
  const { world } = crew.site
  const allow = [{ verb: 'acquire', prefix: 'x' }] as const
  const made = await crew.propose({ kind: 'key', name: 'limited', hash: 'a'.repeat(64), allow, limits: { waiters: 1 } })
  if (made.kind !== 'done' || made.id === undefined) throw new Error(`a scene was refused: ${JSON.stringify(made)}`)
  await leaseOf(crew, { holder: 'holder', ttl: LONG, wants: [{ resource: 'x/limited' }] })
  // Without a lease of the key, its counts would be forgotten together.
  await crew.propose({ kind: 'acquire', holder: 'of the key', ttl: LONG, wants: [{ resource: 'x/of-the-key' }] }, made.id)
  const wait = (holder: string) =>
    crew.propose({ kind: 'acquire', holder, ttl: 1_000, wants: [{ resource: 'x/limited' }], wait: true }, made.id)
  for (const holder of ['first', 'second']) {
    const outcome = await wait(holder)
    if (outcome.kind !== 'queued') world.violate('S10', `a key without waiters was refused one: ${JSON.stringify(outcome)}`)
    else {
      const more = await wait('more')
      if (more.kind !== 'refused') world.violate('S10', `a key with one waiter, its limit, got another: ${JSON.stringify(more)}`)
      await crew.propose({ kind: 'release', lease: outcome.lease }, made.id)
    }
  }
  await crew.propose({ kind: 'unkey', id: made.id })
}

/** The name of a client of the face is released natively: the face does not answer that it leads. */
async function releasedUnderFace(crew: Crew): Promise<void> {
  await crew.propose({ kind: 'release', lease: await crew.faceLease(), resource: FACE_NAME })
  await crew.pause(2_000)
}

/** The client of a face that a restored log names has lost its lease since, and another holder relies on the name: the face does not answer that the client leads. */
async function identityAfterRestore(crew: Crew): Promise<void> {
  const { world, referee } = crew.site
  const backup = (await crew.changes.backup())!
  const lease = await leaseOf(crew, { holder: 'after the client', ttl: LONG, wants: [{ resource: FACE_NAME }], wait: true })
  await crew.propose({ kind: 'revoke', target: { lease: await crew.faceLease() } })
  await crew.until('the other holder is granted the name', () => findLease(referee.state, lease)?.status === LIVE)
  const held = new Held('after the client', crew.clock)
  const sent = held.mark(world.now)
  const renewed = await crew.propose({ kind: 'renew', leases: [lease] })
  if (renewed.kind !== 'renewed') throw new Error(`a scene was refused: ${JSON.stringify(renewed)}`)
  held.lease = lease
  held.grants = findLease(referee.state, lease)!.grants.map(({ resource, token }) => ({
    resource: resource.name,
    units: 1,
    shared: false,
    token,
  }))
  referee.terms.acknowledged(lease, sent.world, renewed.ttls[0]!)
  held.believe(sent, renewed.ttls[0]!)
  referee.beliefs.begins(held)
  await crew.changes.restore(backup)
  await crew.pause(LONG)
}

/** A renewal with a ttl keeps to the policy for the entry: the referee judges that. */
async function lengthenedEntry(crew: Crew): Promise<void> {
  await crew.propose({ kind: 'policy', prefix: 'e/short', rules: { ttlMax: 1_500 } })
  const lease = await leaseOf(crew, { entries: [{ key: 'e/short/x', value: 'x' }] })
  await crew.propose({ kind: 'renew', leases: [lease], ttl: 3_000 })
}

/** An acquire arrives after its caller was told that its outcome is unknown. Its lease is given back soon, and not after its term. */
async function orphan(crew: Crew): Promise<void> {
  const { world, referee } = crew.site
  const host = crew.hosts.find(({ replica }) => replica !== undefined)!
  const lessor = new LateLessor(host, host.replica!, referee.givenUp)
  const leases = new Leases(lessor, { holder: 'orphan', clock: crew.clock, ttl: LONG })
  await leases.tryAcquire('x/orphan').catch(ignored)
  lessor.deliver()
  await crew.pause(LONG / 2)
  const left = [...referee.state.leases.values()].find(({ holder }) => holder.name === 'orphan')
  if (left !== undefined) world.violate('L1', `lease ${left.id} of a request whose caller has gone is held ${LONG / 2} ms later`)
  await leases[Symbol.asyncDispose]().catch(ignored)
}

/** Nothing that is sent arrives until `deliver`. */
class LateLessor extends HostLessor {
  #waiting: (() => void)[] | undefined = []

  readonly #givenUp: Set<number>

  constructor(host: Host, replica: Replica, givenUp: Set<number>) {
    super(host, replica)
    this.#givenUp = givenUp
  }

  override submit(command: Command, options: ProposeOptions, completion: Completion): void {
    if (command.kind === 'release') this.#givenUp.add(command.lease)
    if (this.#waiting === undefined) super.submit(command, options, completion)
    else this.#waiting.push(() => super.submit(command, options, completion))
  }

  deliver(): void {
    const waiting = this.#waiting ?? []
    this.#waiting = undefined
    for (const send of waiting) send()
  }
}

/** A lease that a second thread renews is believed in for no longer than its term, also if timers were late for a while. */
async function secondThread(crew: Crew): Promise<void> {
  await offer(crew, 1)
  await crew.startProgram()
  await crew.stallProgram()
  await crew.endProgram()
}

/**
 * A record is visible, and its wait for the standby was ended. Another replica reads it, and gets the same operation, of which its sender does not say that it was sent before. It must not answer with what a failover then
 * undoes: the referee judges that.
 */
async function undoneAnswer(crew: Crew): Promise<void> {
  const [first, second] = crew.hosts
  const { referee } = crew.site
  const log = crew.site.log as ReplicatedLog
  const request: Acquire = { kind: 'acquire', holder: 'undone', ttl: 1_000, wants: [{ resource: 'x/undone' }] }
  const op = { session: 'undone', seq: 1, acked: 0 }
  await crew.until('both hosts run', () => crew.hosts.every(({ replica }) => replica !== undefined))
  log.losesStandby()
  const answers = [first!.propose(request, op).catch(ignored)]
  // Other commits may come before it.
  while (!referee.state.resources.has('x/undone')) {
    await crew.pause(5)
    log.terminates()
  }
  await crew.pause(20)
  answers.push(second!.propose(request, op).catch(ignored))
  await crew.pause(100)
  log.failsOver()
  await Promise.all(answers)
}

/** The value of a lock is written with its grant and with its release: a client that read an older value gets neither. The referee judges what is written. */
async function valueWithLock(crew: Crew): Promise<void> {
  const { world, referee } = crew.site
  const key = 'lock/value'
  await crew.propose({ kind: 'policy', prefix: 'lock', rules: { freeEntries: 2 } })
  const read = () => referee.state.free.get(key)?.revision ?? 0
  const writing = (value: string, number: number) => {
    const compare = [{ key, field: 'revision', is: 'equal', number }] as const
    return {
      compare,
      changes: [
        { key, value },
        { key: 'lock/mine', value },
      ],
    }
  }
  const take = (holder: string, number: number) => acquire(crew, { holder, wants: [{ resource: 'x/lock' }], ...writing(holder, number) })
  const refused = (outcome: Outcome) => {
    if (outcome.kind !== 'refused') world.violate('S26', `a client that read an older value wrote another: ${JSON.stringify(outcome)}`)
  }
  const old = read()
  const first = await take('first', old)
  if (first.kind !== 'granted') throw new Error(`a scene was refused: ${JSON.stringify(first)}`)
  const release = (value: string, number: number) => crew.propose({ kind: 'release', lease: first.lease, ...writing(value, number) })
  refused(await take('second', read()))
  refused(await release('late', old))
  referee.givenUp.add(first.lease)
  await release('given back', read())
  refused(await take('late', old))
  if (referee.state.free.get(key)?.value !== 'given back') world.violate('S26', 'the value of a lock is not that of its release')
  await crew.propose({
    kind: 'transaction',
    success: [
      { key, delete: true },
      { key: 'lock/mine', delete: true },
    ],
  })
}

function ignored(error: unknown): undefined {
  if (!(error instanceof LeaseError)) throw error
  return undefined
}

/**
 * Two processes only hold a lease each, and renew often: one of them reads, and the renewals of the other are appended behind what it has not read. The replicas of the
 * world follow the log, and end a lease whose renewals have no effect. In the end one of the leases is revoked; its process must be told by its next renewal.
 */
async function passedRenewals(crew: Crew): Promise<void> {
  const { world, referee } = crew.site
  const site = { ...crew.site, readEvery: 2_000 }
  const hosts = [0, 1].map(i => new Host(site, world.machine(`idle${i}`, 1), false))
  for (const host of hosts) await host.start()
  const holders = await Promise.all(
    hosts.map(async (by, i) => ({ by, held: (await hold(crew, { holder: `idle${i}`, wants: [{ resource: `x/idle${i}` }] }, { by }))! })),
  )
  const renew = async ({ by, held }: (typeof holders)[number]): Promise<void> => {
    const sent = held.mark(world.now)
    const outcome = await by.propose({ kind: 'renew', leases: [held.lease] })
    const [ttl = 0] = outcome.kind === 'renewed' ? outcome.ttls : []
    if (ttl <= 0) return held.stop()
    referee.terms.acknowledged(held.lease, sent.world, ttl)
    held.believe(sent, ttl)
  }
  for (let i = 0; i < 24; i++) {
    await crew.pause(300)
    for (const holder of holders) await renew(holder)
  }
  if (!hosts.some(({ replica }) => (replica?.stats.passed ?? 0) > 5)) world.violate('L1', 'no process renews behind what it has not read')
  for (const { held } of holders) {
    await crew.propose({ kind: 'revoke', target: { lease: held.lease } })
    await Promise.all(holders.map(renew))
    if (held.holds() && !referee.state.leases.has(held.lease)) world.violate('S6', `${held.who} is not told that its lease was revoked`)
  }
  for (const host of hosts) await host.close()
}
