/**
 * Proof that the simulator sees: mistakes planted one by one into a copy of the built code, each of which must be found, under the right
 * name. Most are accidents that happened to others (docs/guarantees.md names them), the rest are rules of our own, each broken once.
 *
 * The code under test carries no switches. A mistake is one piece of text replaced in the copy; text that is not there exactly once is
 * itself a failure, so a mistake cannot quietly stop being planted.
 */
import { spawn } from 'node:child_process'
import { cpSync, existsSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { systemClock } from '../../clock.ts'
import { LIBRARY_BUGS } from './planted-library.ts'
import { WIRE_BUGS } from './planted-wire.ts'
import { replaceOnce } from './replace-once.ts'
import { PROFILES, type ProfileName } from './run.ts'

export interface Planted {
  readonly name: string
  readonly file: string
  readonly find: string
  readonly put: string
  /** The invariants that name it rightly. */
  readonly expected: readonly string[]
  readonly profiles?: readonly ProfileName[]
  /** Where it was seen, for what shows itself only now and then: looked at first. As the code changes it may have moved elsewhere. */
  readonly seen?: { readonly profile: ProfileName; readonly seed: number }
}

export const BUGS: readonly Planted[] = [
  // Rules of the kernel
  {
    name: 'a lapse ignores that its timer was restarted',
    file: 'kernel/time.js',
    find: `    // Restarted since the proposer looked: it was only late, not wrong.
    if (lease === undefined || timerOf(lease, slot)?.epoch !== epoch)`,
    put: '    if (lease === undefined)',
    expected: ['S4', 'S1'],
  },
  {
    name: 'a renewal brings back what was revoked',
    file: 'kernel/renew.js',
    find: 'lease.status === FROZEN ||',
    put: '',
    expected: ['S6'],
  },
  {
    name: 'a revoked holder that still believes is not waited for',
    file: 'kernel/end.js',
    find: 'const believes = !stopped &&',
    put: 'const believes = false && !stopped &&',
    expected: ['S1'],
  },
  {
    name: "a parent's end frees at once what its children hold",
    file: 'kernel/end.js',
    find: "cause: 'parent', stopped: false",
    put: "cause: 'parent', stopped: true",
    expected: ['S1'],
    profiles: ['embedded', 'owned'],
    seen: { profile: 'embedded', seed: 4 },
  },
  {
    name: 'entries outlive their lease',
    file: 'kernel/end.js',
    find: 'if (rare.entries !== undefined)',
    put: 'if (false)',
    expected: ['S8'],
  },
  {
    name: 'two grants get one token',
    file: 'kernel/queue.js',
    find: 'token: state.nextToken++',
    put: 'token: state.nextToken',
    expected: ['S3'],
  },
  {
    name: 'whoever is shown more to choose from stands last there',
    file: 'kernel/widen.js',
    find: 'resource.queue.splice(positionOf(resource, lease), 0, lease)',
    put: 'resource.queue.push(lease)',
    expected: ['S14'],
  },
  {
    name: 'what is free is not given to whoever is shown it later',
    file: 'kernel/widen.js',
    find: 'freed.add(resource);',
    put: '',
    expected: ['L1'],
  },
  {
    name: 'a waiter whose own lease had died is granted (etcd 11456)',
    file: 'kernel/end.js',
    find: '    leaveQueues(state, lease, freed);',
    put: '    state.counts.waiting--;',
    expected: ['S14', 'S6', 'S8'],
  },
  {
    name: 'the last in the queue goes first',
    file: 'kernel/queue.js',
    find: 'waiter.id < id',
    put: 'waiter.id > id',
    expected: ['S14'],
  },
  {
    name: 'a newcomer overtakes those who wait',
    file: 'kernel/queue.js',
    find: 'if (blocks(resource.queue[i], resource))\n            return false;',
    put: '',
    expected: ['S14'],
  },
  {
    name: 'what a release freed is given to nobody',
    file: 'kernel/settle.js',
    find: 'if (resource.queue.length > 0)',
    put: 'if (false)',
    expected: ['L1'],
  },
  {
    name: 'one who wants more than there is keeps others waiting',
    file: 'kernel/queue.js',
    find: 'rare.passed = new Set(',
    put: 'if (false)\n        rare.passed = new Set(',
    expected: ['L1', 'S14'],
    profiles: ['restless', 'embedded'],
    seen: { profile: 'restless', seed: 4 },
  },
  {
    name: 'more units are granted than there are',
    file: 'kernel/queue.js',
    find: 'resource.used + want.units <= capacity',
    put: 'resource.used <= capacity',
    expected: ['S15', 'S1'],
  },
  {
    name: 'an exclusive grant does not mind shared ones',
    file: 'kernel/queue.js',
    find: 'resource.sharers === 0 &&',
    put: '',
    expected: ['S15', 'S1'],
  },
  {
    name: 'an operation sent twice is done twice (jetcd)',
    file: 'kernel/batch.js',
    find: 'if (known !== undefined)\n        return known',
    put: 'if (false)\n        return known',
    expected: ['S11'],
    profiles: ['servers', 'owned'],
  },
  {
    name: 'an entry sent twice is applied twice',
    file: 'kernel/batch.js',
    find: 'batch.seq <= known.seq',
    put: 'false',
    expected: ['S24', 'S11'],
  },
  {
    name: 'a mark of another epoch counts',
    file: 'kernel/time.js',
    find: 'if (running?.epoch !== epoch ||',
    put: 'if (running === undefined ||',
    expected: ['S4', 'S1'],
    profiles: ['restless', 'owned'],
    seen: { profile: 'restless', seed: 3 },
  },
  {
    name: 'marks add up instead of replacing each other',
    file: 'kernel/time.js',
    find: 'running.aged = ms;',
    put: 'running.aged += ms;',
    expected: ['S4', 'S1'],
    profiles: ['restless'],
  },
  {
    name: 'a renewal does not end what had aged',
    file: 'kernel/effects.js',
    find: 'lease.aged = 0;',
    put: '',
    expected: ['S4', 'S1'],
    profiles: ['owned', 'restless'],
    seen: { profile: 'restless', seed: 3 },
  },
  {
    name: 'a new run ages what the last one had renewed',
    file: 'kernel/time.js',
    find: `            if (lease.run >= number && timers === undefined)
                continue;
            touch(state, lease);
            if (lease.run < number)`,
    put: '            touch(state, lease);',
    expected: ['S4', 'S1'],
    profiles: ['owned', 'moving'],
  },
  {
    name: 'replicas decide by something of their own',
    file: 'kernel/queue.js',
    find: 'lease.since = state.wall;',
    put: 'lease.since = Math.floor(Math.random() * 1e9);',
    expected: ['S22'],
    profiles: ['embedded', 'calm'],
  },
  {
    name: 'a replica applies the object that its caller has changed since',
    file: 'replica/replica.js',
    find: 'const own = copyOf(command);',
    put: 'const own = command;',
    expected: ['S22', 'S9', 'S10', 'S11', 'S24'],
    profiles: ['embedded', 'owned', 'restless'],
    seen: { profile: 'embedded', seed: 1 },
  },
  {
    name: 'after entries were lost, grants go on at once',
    file: 'kernel/queue.js',
    find: 'if (state.quiet !== undefined && wants.length > 0)',
    put: 'if (false)',
    expected: ['S1'],
    profiles: ['owned', 'servers', 'embedded'],
    seen: { profile: 'owned', seed: 8 },
  },
  {
    name: 'a new generation begins below what survivors saw',
    file: 'kernel/govern.js',
    find: 'state.nextToken = Math.max(state.nextToken, token',
    put: 'state.nextToken = Math.max(state.nextToken, 0 * token',
    expected: ['S3', 'S6'],
    profiles: ['servers', 'owned'],
  },
  {
    name: 'a snapshot is torn by what happens while it is taken',
    file: 'kernel/snapshot.js',
    find: 'if (lease.id <= cursor || lease.id >= limit || ahead.has(lease))',
    put: 'if (true)',
    expected: ['S22', 'S8', 'S24', 'S6', 'S9'],
    profiles: ['restless', 'embedded'],
    seen: { profile: 'embedded', seed: 2 },
  },
  {
    name: 'a watch that resumes skips a revision (etcd 17529)',
    file: 'kernel/event.js',
    find: '.revision > revision)',
    put: '.revision > revision + 1)',
    expected: ['S13'],
  },
  {
    name: 'what hangs on a lease outlives it',
    file: 'kernel/end.js',
    find: 'for (const child of children.reverse())',
    put: 'for (const child of [])',
    expected: ['S8'],
  },
  {
    name: 'lock-delay follows a release, too',
    file: 'kernel/end.js',
    find: "type === 'lapsed' ? lockDelay",
    put: "type === 'lapsed' || type === 'released' ? lockDelay",
    expected: ['L1'],
  },
  {
    name: 'a long grant does not begin short',
    file: 'kernel/state.js',
    find: 'const FIRST_TERM = 30_000',
    put: 'const FIRST_TERM = 30_000_000',
    expected: ['S5'],
    profiles: ['calm'],
  },
  {
    name: 'a second break lengthens the first',
    file: 'kernel/operate.js',
    find: `if (running === undefined)
            return slot;
        if (running.duration <= after)
            return undefined;`,
    put: 'return slot;',
    expected: ['S5'],
    profiles: ['calm'],
  },
  {
    name: 'a thief does not wait until the holder has stopped',
    file: 'kernel/steal.js',
    find: "cause: 'stolen', by: thief.holder.name, stopped: force",
    put: "cause: 'stolen', by: thief.holder.name, stopped: true",
    expected: ['S1', 'S2'],
  },
  {
    name: 'an operator passes on what the giver still believes in',
    file: 'kernel/operate.js',
    find: 'const stopped = command.stopped === true &&',
    put: 'const stopped = true ||',
    expected: ['S1', 'S2'],
    seen: { profile: 'restless', seed: 1 },
  },
  {
    name: 'a waiter whose key was revoked is granted',
    file: 'kernel/govern.js',
    find: 'lease.key === id && lease.status === WAITING',
    put: 'false',
    expected: ['S14'],
  },
  {
    name: 'a key opens what it has no right to',
    file: 'kernel/authority.js',
    find: 'isOf(scope, verb) && under(scope.prefix, name)',
    put: 'isOf(scope, verb)',
    expected: ['S25'],
  },
  {
    name: "a key acts on a stranger's lease",
    file: 'kernel/authority.js',
    find: 'return names.length === 0 ? isAdmin(state, key)',
    put: 'if (names !== undefined) return true; return names.length === 0 ? isAdmin(state, key)',
    expected: ['S7'],
  },
  {
    name: 'priority counts the wrong way while waiters age',
    file: 'kernel/acquire.js',
    find: 'state.elapsed - priority * (',
    put: 'state.elapsed + priority * (',
    expected: ['S14'],
    profiles: ['servers', 'embedded'],
    seen: { profile: 'servers', seed: 3 },
  },
  {
    name: 'a wait is refused for a cycle that is none',
    file: 'kernel/deadlock.js',
    find: 'if (mine.has(holder.id))',
    put: 'if (true)',
    expected: ['S10'],
  },
  {
    name: 'a waiting cycle is closed',
    file: 'kernel/acquire.js',
    find: 'const path = cycle(state, wants, rank, holding);',
    put: 'const path = undefined;',
    expected: ['L1'],
    profiles: ['calm', 'embedded', 'moving'],
    seen: { profile: 'calm', seed: 7 },
  },
  {
    name: 'a process that was replaced registers over its successor (Curator 604)',
    file: 'kernel/attach.js',
    find: 'if (mine && owner.incarnation > holder.incarnation)',
    put: 'if (false)',
    expected: ['S18'],
    profiles: ['restless', 'moving'],
    seen: { profile: 'moving', seed: 3 },
  },
  {
    name: 'a process that was replaced takes off what its successor registered',
    file: 'kernel/entry.js',
    find: 'id !== undefined && entry.lease.id !== id',
    put: 'false',
    expected: ['S18'],
  },
  {
    name: 'an entry that was taken over goes with the lease it hung on before',
    file: 'kernel/attach.js',
    find: 'there.lease.rare.entries.delete(key);',
    put: '',
    expected: ['S18', 'S8'],
    seen: { profile: 'embedded', seed: 2 },
  },
  {
    name: 'a register accepts an older token after a newer one',
    file: 'kernel/fence.js',
    find: 'highest !== undefined && token < highest',
    put: 'false',
    expected: ['S2'],
    seen: { profile: 'moving', seed: 4 },
  },
  {
    name: 'a proposer is forgotten while its entries may still arrive',
    file: 'kernel/batch.js',
    find: 'state.index - index <= WINDOW',
    put: 'state.index - index <= 2',
    expected: ['S24', 'S11'],
  },
  {
    name: 'after entries were lost, terms go on as if no renewal had been among them',
    file: 'kernel/govern.js',
    find: 'restartTerm(state, effects, held, held.term);',
    put: '',
    expected: ['S4', 'S1'],
    profiles: ['servers', 'embedded'],
    seen: { profile: 'servers', seed: 1 },
  },
  // The replica and its time
  {
    name: 'a lapse is proposed too soon',
    file: 'replica/timekeeper.js',
    find: 'timerOf(countdown.lease, countdown.slot)?.duration ?? 0',
    put: '(timerOf(countdown.lease, countdown.slot)?.duration ?? 0) * 0.5',
    expected: ['S4', 'S1'],
  },
  {
    name: 'a lease really lapses at twice its ttl (Consul, Eureka)',
    file: 'replica/timekeeper.js',
    find: 'now >= countdown.zero + this.#duration(countdown)',
    put: 'now >= countdown.zero + this.#duration(countdown) * 2',
    expected: ['S5'],
    profiles: ['calm'],
  },
  {
    name: 'every restart begins to count anew (etcd 9395)',
    file: 'replica/timekeeper.js',
    find: 'const running = marked.filter(',
    put: 'const running = [].filter(',
    expected: ['S5'],
    profiles: ['restless'],
    seen: { profile: 'restless', seed: 2 },
  },
  {
    name: 'an owner does not mark what it found',
    file: 'replica/timekeeper.js',
    find: "this.#propose({ kind: 'aged-together'",
    put: "if (false) this.#propose({ kind: 'aged-together'",
    expected: ['S5'],
    profiles: ['owned'],
    seen: { profile: 'owned', seed: 2 },
  },
  {
    name: 'an owner renews in memory what it is about to end',
    file: 'replica/timekeeper.js',
    find: 'countdown.busy !== 0 || !lease.confirmed',
    put: '!lease.confirmed',
    expected: ['S4', 'S1'],
    profiles: ['owned', 'moving'],
    seen: { profile: 'moving', seed: 14 },
  },
  {
    name: 'the first renewal after a restart is only in memory',
    file: 'replica/timekeeper.js',
    find: 'lease.run !== this.#state.run.number',
    put: 'false',
    expected: ['S4', 'S1'],
    profiles: ['owned', 'moving'],
    seen: { profile: 'owned', seed: 8 },
  },
  {
    name: "the age of an entry counts although its lease was renewed in the owner's memory",
    file: 'replica/timekeeper.js',
    find: 'this.#moment - (this.#state.run.owned ? 0 : this.#age)',
    put: 'this.#moment - this.#age',
    expected: ['S4', 'S1'],
    profiles: ['owned', 'moving'],
  },
  {
    name: 'a stalled server wakes and lapses everything (etcd 15247)',
    file: 'replica/timekeeper.js',
    find: 'more = await this.#stalledWhile(reading);',
    put: 'more = 0;',
    expected: ['S19'],
    profiles: ['owned'],
    seen: { profile: 'owned', seed: 19 },
  },
  {
    name: 'the wall clock decides',
    file: 'replica/timekeeper.js',
    find: 'return this.#clock.now() - this.#origin - this.#stalls;',
    put: 'return this.#clock.wall() - this.#origin - this.#stalls;',
    expected: ['S4', 'S1', 'S5'],
    profiles: ['calm', 'embedded'],
  },
  {
    name: 'silence is reported as certainly not done',
    file: 'replica/outbox.js',
    find: 'if (!flight.lost)\n                        return this.#reject(flight, error);',
    put: "if (true)\n                        return this.#reject(flight, new LeaseError('UNAVAILABLE', 'gave up'));",
    expected: ['S12'],
    profiles: ['embedded', 'owned'],
  },
  {
    name: 'a refusal comes from a state that may be old',
    file: 'replica/replica.js',
    find: 'await orAborted(this.#atTheEnd(), signal);\n        const refused',
    put: 'const refused',
    expected: ['S10'],
    profiles: ['embedded', 'servers'],
  },
  {
    name: 'a replica goes on under rules that it does not know',
    file: 'replica/follower.js',
    find: 'if (!understands(this.#state))',
    put: 'if (false)',
    expected: ['S22'],
    profiles: ['rolling'],
  },
  {
    name: 'a snapshot of rules that it does not know is loaded',
    file: 'kernel/snapshot.js',
    find: 'if (state.rules > RULES)',
    put: 'if (false)',
    expected: ['S22'],
    profiles: ['rolling'],
  },
  {
    name: 'a log begins with the rules of whoever reads it',
    file: 'kernel/batch.js',
    find: 'foundAt(state, batch.wall, batch.rules)',
    put: 'foundAt(state, batch.wall, RULES)',
    expected: ['S22'],
    profiles: ['rolling'],
  },
  {
    name: 'a replica that skipped ahead tells its watchers of no gap (etcd 18089)',
    file: 'replica/follower.js',
    find: 'new RecentEvents(this.#state.revision',
    put: 'new RecentEvents(0',
    expected: ['S13'],
    profiles: ['restless', 'embedded'],
  },
  {
    name: 'a log that lost its tail goes unnoticed',
    file: 'store/memory.js',
    find: 'if (found.nonce !== nonce)',
    put: 'if (false)',
    expected: ['S24', 'S22', 'S9', 'S13', 'S3', 'S6', 'S1'],
    profiles: ['servers', 'embedded'],
  },
  {
    name: 'what was sent before is reported as certainly not done, since the disk is full now',
    file: 'replica/outbox.js',
    find: 'flight.lost ||= ',
    put: 'flight.lost = ',
    expected: ['S12'],
    profiles: ['embedded'],
    seen: { profile: 'embedded', seed: 11 },
  },
  {
    name: 'two processes own one store',
    file: 'store/memory.js',
    find: 'if (this.#owner) {',
    put: 'if (false) {',
    expected: ['S20'],
    profiles: ['moving'],
  },
  // Holders
  {
    name: 'validity is counted from the answer (etcd, client-go, KCL)',
    file: 'testing/sim/holder.js',
    find: 'now: sent.now + valid, uptime: sent.uptime + valid',
    put: 'now: this.#clock.now() + valid, uptime: this.#clock.uptime() + valid',
    expected: ['S1'],
    seen: { profile: 'embedded', seed: 5 },
  },
  {
    name: 'the margin is on the wrong side',
    file: 'testing/sim/holder.js',
    find: 'const DELTA = 0.01',
    put: 'const DELTA = -0.1',
    expected: ['S1'],
  },
  {
    name: 'a holder that slept through its time asks only the clock that slept too',
    file: 'testing/sim/holder.js',
    find: ' && this.#clock.uptime() < this.#until.uptime',
    put: '',
    expected: ['S1'],
    profiles: ['embedded', 'servers'],
    seen: { profile: 'servers', seed: 4 },
  },
  {
    name: 'a waiter believes from the news of its grant (redlock 296)',
    file: 'testing/sim/holder.js',
    find: "const ttl = outcome.kind === 'renewed' ? outcome.ttls[0] : -1;",
    put: "const ttl = Math.max(900, outcome.kind === 'renewed' ? outcome.ttls[0] : -1);",
    expected: ['S1', 'S4'],
  },
  {
    name: 'what was lost by its own clock is believed again when an answer comes',
    file: 'testing/sim/holder.js',
    find: 'if (!held.holds())\n                return;\n            held.believe(sent, ttl);',
    put: 'held.believe(held.mark(0), ttl);',
    expected: ['S1'],
    profiles: ['servers', 'embedded'],
    seen: { profile: 'servers', seed: 4 },
  },
  {
    name: 'the seat is released while the work goes on (kubernetes 139991)',
    file: 'testing/sim/holder.js',
    find: 'held.stop();\n        this.#site.referee.givenUp.add(held.lease);\n        // What hangs',
    put: 'this.#site.referee.givenUp.add(held.lease);\n        // What hangs',
    expected: ['S1'],
  },
  {
    name: 'a giver goes on believing after it has passed its lease on',
    file: 'testing/sim/holder.js',
    find: 'held.stop();\n        this.#site.referee.givenUp.add(held.lease);\n        const',
    put: 'this.#site.referee.givenUp.add(held.lease);\n        const',
    expected: ['S1'],
  },
  {
    name: 'a renewal that failed is only noted (Redisson 4698, Consul)',
    file: 'testing/sim/holder.js',
    find: 'const ttl = outcome.ttls[0];\n            if (ttl <= 0)',
    put: 'const ttl = Math.max(900, outcome.ttls[0]);\n            if (ttl <= 0)',
    expected: ['S1', 'S4'],
  },
  ...LIBRARY_BUGS,
  ...WIRE_BUGS,
]

export interface PlantedResult {
  readonly name: string
  readonly seconds: number
  readonly expected: readonly string[]
  readonly found: { readonly invariant: string; readonly seed: number; readonly profile: string } | undefined
  readonly instead: string
}

/** Where a mistake of the kernel, the replica or the store shows itself, unless it is said otherwise. */
const EVERYWHERE = PROFILES.filter(profile => profile !== 'resp' && profile !== 'http' && profile !== 'rolling')
const SEEDS = 60
const SECONDS = 90

/** Plants each bug and looks for it, two at a time. */
export async function findPlanted({
  only,
  say,
}: {
  readonly only: string | undefined
  readonly say: (line: string) => void
}): Promise<PlantedResult[]> {
  const wanted = BUGS.filter(({ name }) => only === undefined || name.includes(only))
  const results: PlantedResult[] = []
  const next = wanted.values()
  const work = async () => {
    for (const bug of next) {
      const result = await find(bug)
      results.push(result)
      const { name, seconds, found, expected, instead } = result
      if (found !== undefined) say(`found  ${name}: ${found.invariant} at seed ${found.seed} of ${found.profile} (${seconds.toFixed(1)} s)`)
      else say(`MISSED ${name}: expected ${expected.join(' or ')}${instead === '' ? '' : `, saw ${instead}`} (${seconds.toFixed(1)} s)`)
    }
  }
  await Promise.all([work(), work()])
  return results
}

async function find(bug: Planted): Promise<PlantedResult> {
  const began = systemClock.now()
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-planted-'))
  let instead = ''
  try {
    plant(bug, folder)
    const main = join(folder, 'dist/testing/sim/main.js')
    const left = () => SECONDS - (systemClock.now() - began) / 1_000
    for (const { profile, from, seeds } of places(bug)) {
      if (left() <= 0) break
      const seen = await runUntilViolation(main, { profile, from, seeds, seconds: Math.max(1, left()) })
      if (seen === undefined) continue
      const seconds = (systemClock.now() - began) / 1_000
      if (bug.expected.includes(seen.invariant)) return { ...bug, seconds, found: { ...seen, profile }, instead: '' }
      instead = seen.message
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
  return { ...bug, seconds: (systemClock.now() - began) / 1_000, found: undefined, instead }
}

/** Where to look: where it was seen, then a few seeds of each profile in turn, since a mistake hides from some and not from others. */
function* places({ profiles = EVERYWHERE, seen }: Planted): Generator<{ profile: ProfileName; from: number; seeds: number }> {
  if (seen !== undefined) yield { profile: seen.profile, from: seen.seed, seeds: 1 }
  for (let from = 1; from <= SEEDS; from += 4) for (const profile of profiles) yield { profile, from, seeds: 4 }
}

/** Puts a copy of the build with this one mistake into `folder`. */
export function plant({ file, find: text, put }: Planted, folder: string, built = fileURLToPath(new URL('../..', import.meta.url))): void {
  cpSync(built, join(folder, 'dist'), { recursive: true, filter: path => !/\.(map|d\.ts)$/.test(path) })
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
  // A server needs its dependencies, wherever it stands.
  const modules = join(built, '../node_modules')
  if (existsSync(modules)) symlinkSync(modules, join(folder, 'node_modules'))
  replaceOnce(join(folder, 'dist', file), text, put)
}

interface Seen {
  readonly seed: number
  readonly invariant: string
  readonly message: string
}

function runUntilViolation(
  main: string,
  { profile, from, seeds, seconds }: { readonly profile: string; readonly from: number; readonly seeds: number; readonly seconds: number },
): Promise<Seen | undefined> {
  return new Promise(resolve => {
    const args = [
      '--min-semi-space-size=32',
      '--max-semi-space-size=64',
      main,
      '--json',
      '--first',
      '--seeds',
      String(seeds),
      '--from',
      String(from),
      '--profile',
      profile,
    ]
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] })
    const stop = systemClock.after(seconds * 1_000, () => child.kill('SIGKILL'), { ref: true })
    let last = ''
    let trouble = ''
    createInterface({ input: child.stdout }).on('line', line => {
      last = line
    })
    child.stderr.on('data', data => {
      trouble = `${trouble}${data}`.slice(0, 2_000)
    })
    child.on('close', () => {
      stop()
      if (last.startsWith('{')) return resolve((JSON.parse(last) as { readonly found: readonly Seen[] }).found[0])
      resolve(
        trouble === ''
          ? undefined
          : { seed: from, invariant: 'CRASH', message: trouble.split('\n').find(line => /Error/.test(line)) ?? trouble },
      )
    })
  })
}
