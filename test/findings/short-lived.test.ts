/** Known findings: processes that open the store, ask once and end, as a job of cron does. */
import { expect } from 'vitest'
import { Leases } from '../../src/leases.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import type { Store } from '../../src/store.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { AgelessStore } from '../support/ageless-store.ts'
import { knownFinding } from '../support/known-finding.ts'
import { granted } from '../support/replica/rig.ts'

const TTL = 2_000
const MINUTE = 60_000

/** A holder acquires the name for two seconds and is killed. */
async function killedHolder(clock: ManualClock, log: MemoryLog): Promise<void> {
  const store = new AgelessStore({ log, clock })
  const replica = await Replica.open(store, { clock })
  const { lease } = granted(await propose(replica, { kind: 'acquire', holder: 'dead', ttl: TTL, wants: [{ resource: 'nightly' }] }))
  await propose(replica, { kind: 'renew', leases: [lease] })
  store.kill()
}

/** A process that tries once, and lives until it has an answer. */
async function tryOnce(clock: ManualClock, store: Store): Promise<'granted' | 'held' | 'UNCONFIRMED'> {
  await using leases = new Leases(await Replica.open(store, { clock }), { clock, holder: 'cron' })
  let answer: 'granted' | 'held' | 'UNCONFIRMED' | undefined
  leases.tryAcquire('nightly', { ttl: TTL }).then(
    lease => {
      answer = lease === undefined ? 'held' : 'granted'
    },
    error => {
      answer = error.code
    },
  )
  await clock.settle()
  for (let waited = 0; answer === undefined && waited < MINUTE; waited += 100) await clock.advance(100)
  expect(answer).toBeDefined()
  return answer!
}

knownFinding(
  'short-lived-immortal-lease',
  'on a store without ages, a job that starts every 15 s gets the name of a dead holder within nine minutes',
  async claim => {
    const clock = new ManualClock()
    const log = new MemoryLog({ clock })
    await killedHolder(clock, log)
    const answers: string[] = []
    for (let tries = 0; tries < 37 && answers.at(-1) !== 'granted'; tries++) {
      await clock.advance(15_000)
      answers.push(await tryOnce(clock, new AgelessStore({ log, clock })))
    }
    await claim(() => expect(answers.at(-1)).toBe('granted'))
  },
)

knownFinding(
  'short-lived-immortal-lease',
  'on a store with ages, the first try after the term of a dead holder gets its name',
  async claim => {
    const clock = new ManualClock()
    const log = new MemoryLog({ clock })
    await killedHolder(clock, log)
    await clock.advance(9 * MINUTE)
    const answer = await tryOnce(clock, new MemoryStore({ log, clock }))
    await claim(() => expect(answer).toBe('granted'))
  },
)
