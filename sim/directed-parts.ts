/** This file states how each feature comes into force in the directed world, and how it acts there. */
import { CLASS_LABEL } from '../src/holder/learned-terms.ts'
import type { Acquire } from '../src/kernel/command.ts'
import { LONGEST, type Stage, UNITS } from './directed-stage.ts'
import type { Feature } from './features.ts'
import { FACE_NAME, marks } from './mixed-wishes.ts'

export interface Part {
  /** Returns what the main lease asks for besides. */
  readonly request?: (stage: Stage) => Partial<Acquire> | Promise<Partial<Acquire>>
  /** Returns what the main lease must ask for, so that this feature can act on it. */
  readonly needs?: (stage: Stage) => Promise<Partial<Acquire>>
  /** Returns what must be done before another feature comes into force, so that this one can act afterwards. */
  readonly prepare?: (stage: Stage) => Promise<unknown>
  /** Brings it into force; left out: the request of the main lease has done so. */
  readonly begin?: (stage: Stage) => Promise<unknown>
  readonly act: (stage: Stage) => Promise<unknown>
}

/** A waiter for the member that is asked for by its name, while another lease holds it. */
async function waiter(stage: Stage, request: Partial<Acquire> = {}): Promise<number> {
  await stage.hold({ wants: [{ resource: stage.named }, { resource: 'x/held' }] })
  return (await stage.ask({ wants: [{ resource: stage.named }], wait: true, ...request }))!
}

/** A feature of a request: of the main lease, or of another one for the named member. */
function requested(request: Partial<Acquire>): Part {
  return { request: () => request, act: stage => stage.ask({ wants: [{ resource: stage.named }], wait: true, ...request }) }
}

/** A feature that only a request for names can have. */
function named(wants: (stage: Stage) => Partial<Acquire>): Part {
  return { begin: stage => stage.hold(wants(stage)), act: stage => stage.ask({ wait: true, ...wants(stage) }) }
}

export const PARTS: Readonly<Record<Feature, Part>> = {
  wait: { begin: waiter, act: waiter },
  'no-wait': { begin: stage => stage.hold(), act: stage => stage.ask({ wants: [{ resource: stage.named }] }) },
  any: named(stage => ({ wants: [{ resource: stage.named }, { resource: 'x/other' }], any: 1 })),
  units: named(stage => ({ wants: [{ resource: stage.named }, { resource: UNITS, units: 2 }] })),
  permits: {
    begin: async stage => {
      const held = [stage.named, 'x/permits', 'x/held'].map(resource => ({ resource }))
      await stage.hold({ wants: held, permits: 2 })
      await stage.ask({ wants: [{ resource: FACE_NAME }], permits: 2, wait: true })
    },
    act: async stage => {
      await stage.ask({ wants: [{ resource: FACE_NAME }], permits: 3, wait: true })
      for (let i = 0; i < 3; i++) await stage.ask({ wants: [{ resource: 'x/permits' }], permits: 3, wait: i > 0 })
      await stage.ask({ wants: [{ resource: stage.named }, { resource: 'x/permits' }], permits: 3, wait: true })
    },
  },
  covers: {
    begin: async stage => {
      // It offers a member, so that it is in force beside all leases of the pool.
      await stage.hold({ wants: [{ resource: 'x' }], covers: true, entries: [{ key: 'pool/g/covering', value: '{"units":1}' }] })
      await stage.ask({ wants: [{ resource: 'x/below' }], wait: true })
      await stage.ask({ wants: [{ resource: FACE_NAME }], covers: true, wait: true })
    },
    act: async stage => {
      const shared = stage.crew.dice.chance(0.5)
      const below = await stage.hold({ wants: [{ resource: 'x/below', shared }] })
      const entries = [{ key: 'pool/g/waiting', value: '{"units":1}' }]
      await stage.ask({ wants: [{ resource: 'x', shared }], covers: true, wait: true, entries, parent: stage.target })
      await stage.ask({ wants: [{ resource: 'x/other' }], wait: true })
      stage.crew.site.referee.givenUp.add(below)
      await stage.propose({ kind: 'release', lease: below })
    },
  },
  shared: named(stage => ({ wants: [{ resource: stage.named, shared: true }] })),
  parent: {
    request: async stage => ({ parent: await stage.hold({ wants: [] }) }),
    act: stage => stage.ask({ wants: [{ resource: stage.named }], wait: true, parent: stage.target }),
  },
  session: {
    request: async stage => ({ parent: await stage.hold({ wants: [], labels: [marks('session')] }) }),
    act: async stage => {
      const parent = await stage.hold({ wants: [], labels: [marks('session')] })
      await stage.ask({ wants: [{ resource: stage.named }], wait: true, parent })
    },
  },
  entries: {
    request: () => ({ entries: [{ key: 'e/main', value: 'x' }] }),
    act: async stage => {
      await stage.propose({ kind: 'put', lease: stage.target, key: 'e/put', value: 'x' })
      await stage.ask({ wants: [{ resource: stage.named }], changes: [{ key: 'e/free', value: 'x' }] })
    },
  },
  'pool-member': { act: stage => stage.take() },
  reservation: {
    begin: stage => stage.reserve(900),
    act: stage => stage.reserve(stage.crew.dice.pick([60, 900])),
  },
  preemptible: {
    request: () => ({ pool: { pool: 'g', preemptible: true } }),
    act: stage => stage.take({ pool: { pool: 'g', preemptible: true } }),
  },
  quota: { act: stage => stage.take() },
  borrowed: { act: stage => stage.take({ pool: { pool: 'g', count: 2 } }) },
  transfer: { begin: stage => stage.transfer(), act: stage => stage.transfer() },
  break: {
    begin: stage => stage.propose({ kind: 'break', resource: stage.own, after: 1_400 }),
    act: async stage => {
      const after = stage.crew.dice.pick([0, 100])
      await stage.propose({ kind: 'break', resource: stage.own, after })
      await stage.crew.pause(after * 2)
    },
  },
  steal: {
    begin: async stage => {
      await stage.hold()
      await stage.ask({ wants: [{ resource: stage.named }], wait: true, steal: 'after' })
    },
    act: stage => stage.ask({ wants: [{ resource: stage.own }], wait: true, steal: 'after' }),
  },
  revoke: {
    begin: async stage => stage.propose({ kind: 'revoke', target: { lease: await stage.hold() } }),
    act: stage => stage.propose({ kind: 'revoke', target: { lease: stage.target } }),
  },
  widen: { begin: widened, act: widened },
  'partial-release': { begin: stage => stage.giveBackMember(), act: stage => stage.giveBackMember() },
  extend: { begin: extend, act: extend },
  'renew-with-ttl': { begin: stage => stage.renewMain(1_400), act: stage => stage.renewMain(1_200) },
  'learned-term': requested({ labels: [marks('learned-term'), [CLASS_LABEL, 'x']] }),
  'worker-renews': {
    begin: async stage => {
      stage.target = await stage.crew.startProgram()
    },
    act: async stage => {
      await stage.crew.startProgram()
      await stage.crew.stallProgram()
    },
  },
  'renew-never': requested({ labels: [marks('renew-never')] }),
  grace: requested({ grace: 200 }),
  'lock-delay': { act: stage => stage.crew.pause(LONGEST + 300) },
  cap: requested({ maxLife: 15_000 }),
  'adopt-by-name': {
    prepare: stage => stage.transfer(),
    begin: async stage => {
      await stage.transfer()
      await stage.claim()
    },
    act: async stage => {
      await stage.claim()
      await stage.claimReservation()
    },
  },
  restore: onWholeLog(restore),
  rollback: onWholeLog(loseRecords),
  migration: onWholeLog(({ crew }) => crew.changes.migrate()),
  'face-lease': {
    request: underFace,
    needs: underFace,
    act: stage => stage.crew.pause(500),
  },
  'short-lived': {
    begin: async stage => {
      stage.target = (await stage.crew.runShortLived()) ?? stage.target
    },
    act: stage => stage.crew.runShortLived(),
  },
}

async function underFace({ crew }: Stage): Promise<Partial<Acquire>> {
  return { parent: await crew.faceLease() }
}

async function widened(stage: Stage): Promise<void> {
  const lease = await waiter(stage, { any: 1 })
  await stage.propose({ kind: 'widen', lease, wants: [{ resource: 'x/held' }] })
}

function extend(stage: Stage): Promise<unknown> {
  return stage.propose({ kind: 'extend', lease: stage.target, by: 300 })
}

/** A feature that changes the log. To be in force, the main lease must outlive the time in which the log grants nothing. */
function onWholeLog(change: (stage: Stage) => Promise<void>): Part {
  return {
    begin: async stage => {
      await change(stage)
      await outlast(stage)
    },
    act: change,
  }
}

async function restore({ crew }: Stage): Promise<void> {
  await crew.changes.restore((await crew.changes.backup())!)
}

/** The engine loses records that both replicas have seen: answers to nothing that matters here. */
async function loseRecords(stage: Stage): Promise<void> {
  const { crew } = stage
  const { referee, log, world } = crew.site
  for (let i = 0; i < 3; i++) await stage.propose({ kind: 'policy', prefix: 'unused', rules: { capacity: i + 1 } })
  const isSeen = () => crew.hosts.every(({ replica }) => replica?.index === referee.length)
  await crew.until('both replicas have seen the log', isSeen)
  const count = Math.min(2, referee.length - (log.snapshot?.position.index ?? 0) - 1)
  if (count < 1) throw new Error('there is nothing to lose')
  world.fault(`the log loses its last ${count} records`)
  log.loseTail(count)
  referee.lose(count)
  await crew.until('a survivor has begun a generation', () => !referee.awaitsGeneration)
}

/** Renews until the log grants again. */
async function outlast(stage: Stage): Promise<void> {
  const { referee } = stage.crew.site
  do {
    await stage.renew()
    await stage.crew.pause(200)
  } while (referee.state.quiet !== undefined)
  await stage.renew()
}
