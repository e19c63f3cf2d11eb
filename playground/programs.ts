/** The programs that processes run on the library, as users write them. */
import type { Lease } from '../src/lease.ts'
import type { Bar } from './history.ts'
import type { Process, Programs } from './process.ts'
import type { Program } from './settings.ts'

export const RESOURCE_NAME = 'jobs/nightly'
const ELECTION = 'scheduler'
const POOL = 'gpu'
/** Members that the first process offers. */
const MEMBERS = 3
/** Each taker of a pool asks for so many members, and needs them for this long, ms. */
const TAKES = [
  { count: 2, expect: 12_000 },
  { count: 3, expect: 6_000 },
  { count: 1, expect: 4_000 },
]

type Run = Programs['lease']

/**
 * Rounds of work under a lease: look at the lease, compute, write with the token. A round does not look at the lease again before it writes, as most programs
 * do not: if the process stands still in between, the token is all that protects the resource.
 */
async function workWhile(process: Process, lease: Lease, name: string, goesOn: () => boolean): Promise<Bar> {
  const { belief, bar } = process.holds(lease, name)
  while (lease.held && goesOn()) {
    await process.pause(process.world.settings.work)
    process.world.uses('lease', belief)
    process.write('lease', name, belief)
  }
  return bar
}

async function workUnder(
  process: Process,
  lease: Lease,
  name: string,
  giveUp: AbortSignal,
  until = Number.POSITIVE_INFINITY,
): Promise<void> {
  const clock = process.machine.clock()
  const end = clock.now() + until
  const bar = await workWhile(process, lease, name, () => !giveUp.aborted && clock.now() < end)
  if (lease.held) process.world.gives(lease.id)
  const { successor } = process
  if (successor !== undefined && lease.held) await lease.transfer(successor).catch(() => lease.release())
  else await lease.release()
  process.ends(bar, successor === undefined ? 'released' : `handed over to ${successor}`)
}

/** Acquires, with a bar for the wait. */
async function waitFor(process: Process, label: string, acquire: () => Promise<Lease>): Promise<Lease> {
  const bar = process.waits('lease', label)
  try {
    return await acquire()
  } finally {
    process.ends(bar, 'answered')
  }
}

const lock: Run = async (process, leases, giveUp) => {
  const { ttl } = process.world.settings
  const lease = await waitFor(process, RESOURCE_NAME, () => leases.acquire(RESOURCE_NAME, { ttl, signal: giveUp }))
  await workUnder(process, lease, RESOURCE_NAME, giveUp)
}

const election: Run = async (process, leases, giveUp) => {
  const waiting = { bar: process.waits('lease', ELECTION) }
  const candidacy = leases.election(ELECTION, { ttl: process.world.settings.ttl })
  try {
    for await (const term of candidacy.terms({ signal: giveUp })) {
      process.ends(waiting.bar, 'elected')
      const bar = await workWhile(process, term.lease, ELECTION, () => !term.signal.aborted)
      const { successor } = process
      if (term.lease.held) process.world.gives(term.lease.id)
      if (successor !== undefined) term.resign(successor)
      process.ends(bar, successor === undefined ? 'resigned' : `resigned in favour of ${successor}`)
      if (!giveUp.aborted) waiting.bar = process.waits('lease', ELECTION)
    }
  } finally {
    process.ends(waiting.bar, 'no candidate any more')
  }
}

/** The first process opens a session with a family; the others want one of its documents. */
const session: Run = async (process, leases, giveUp) => {
  const { ttl } = process.world.settings
  if (process.number > 0) {
    const lease = await waitFor(process, 'documents/1', () => leases.acquire('documents/1', { ttl, signal: giveUp }))
    return workUnder(process, lease, 'documents/1', giveUp)
  }
  const parent = await leases.session({ ttl, renew: 'half' })
  const family = [process.holds(parent.lease, 'session')]
  const documents = [await parent.acquire('documents/1', { ttl }), await parent.acquire('documents/2', { ttl })]
  for (const document of documents) family.push(process.holds(document, document.resources[0]!))
  const child = await parent.begin({ ttl, renew: 'half' })
  family.push(process.holds(child.lease, 'session of a sub-agent'))
  await process.until(() => giveUp.aborted || parent.signal.aborted, AbortSignal.any([giveUp, parent.signal]))
  for (const { belief } of family) process.world.gives(belief.lease)
  await parent.end()
  for (const { bar } of family) process.ends(bar, 'ended with its session')
}

/** The first process offers members of a pool; the others take some of them. */
const pool: Run = async (process, leases, giveUp) => {
  const { ttl } = process.world.settings
  const members = leases.pool(POOL)
  if (process.number === 0) {
    await leases.setPolicy(POOL, { queue: 'backfill' })
    const offers = await Promise.all(Array.from({ length: MEMBERS }, (_, i) => members.offer(`${i + 1}`, { ttl })))
    await process.until(() => giveUp.aborted, giveUp)
    for (const offer of offers) await offer.release()
    return
  }
  const { count, expect } = TAKES[(process.number - 1) % TAKES.length]!
  const label = `${count} of ${MEMBERS} ${POOL}`
  const lease = await waitFor(process, label, () => members.take(count, { ttl, expect, signal: giveUp, patient: true }))
  const done = process.world.now
  await workUnder(process, lease, label, giveUp, expect)
  // Its work is done: it asks again only when it is told to.
  if (process.world.now >= done && !giveUp.aborted) process.want(false)
}

export const PROGRAM_OF: Readonly<Record<Program, Run>> = { lock, election, session, pool }

/** The names whose policy the settings change. */
export function ruledName(program: Program): string {
  return { lock: RESOURCE_NAME, election: `election/${ELECTION}`, session: 'documents', pool: POOL }[program]
}

/** The resource that explanations are about. */
export function resourceOf(program: Program): string {
  return { lock: RESOURCE_NAME, election: `election/${ELECTION}`, session: 'documents/1', pool: `${POOL}/1` }[program]
}
