/** The findings of `leasehold doctor`: it compares two looks at the leases with what was measured, and says what to change and why. */
import { inWords } from '../duration.ts'
import { isLossCause } from '../kernel/loss-cause.ts'
import { RULES } from '../kernel/state.ts'
import type { LeaseView, PastGrant, ResourceView, ServiceView, Summary } from '../lessor.ts'
import type { PlaceMeasurement } from './place-measurement.ts'

export interface Look {
  readonly leases: readonly LeaseView[]
  readonly resources: readonly ResourceView[]
}

export interface Diagnosis {
  readonly summary: Summary
  readonly before: Look
  readonly after: Look
  /** Milliseconds between the two looks. */
  readonly between: number
  readonly services: readonly ServiceView[]
  readonly histories: readonly { readonly resource: string; readonly past: readonly PastGrant[] }[]
  readonly measured: PlaceMeasurement
  /** The number of processes that use the store directly, and the number that it carries. Undefined: not known. */
  readonly users?: { readonly count: number; readonly capacity: number } | undefined
  /** The wall clock of this machine, in ms. */
  readonly wall: number
}

export interface Finding {
  readonly about: string
  /** The problem that was seen, and why it matters. */
  readonly problem: string
  /** The change that helps. */
  readonly change: string
}

/** A ttl of fewer round trips than this leaves no time for a second attempt to renew. */
const LEAST_ROUND_TRIPS = 6
/** Waiters that wait this many ms for a holder that has held as long are worth a look. */
const LONG_WAIT = 600_000
/** Drift beyond this share of what is allowed for. */
const DRIFT_PPM = 2_500
const MOST_OF_A_KIND = 10

export function diagnose(findings: Diagnosis): readonly Finding[] {
  const checks = [log, crowd, clocks, latencies, shortTtls, lateRenewals, flapping, queues, frozen, services]
  return checks.flatMap(check => check(findings).slice(0, MOST_OF_A_KIND))
}

function log({ summary: { rules, quiet, moved } }: Diagnosis): Finding[] {
  const found: Finding[] = []
  if (rules < RULES)
    found.push({
      about: 'versions',
      problem: `the log is at rules version ${rules}, this program knows version ${RULES}: what came with it is not in force`,
      change:
        'upgrade every process that uses the log, then run leasehold upgrade; the next server that owns the log raises the rules by itself',
    })
  if (quiet)
    found.push({
      about: 'log',
      problem: 'it lost records or was restored, so nothing is granted',
      change: 'wait until the longest ttl has passed',
    })
  if (moved !== undefined)
    found.push({
      about: 'log',
      problem: 'its leases have moved',
      change: `use ${moved === '' ? 'the new place once the move is done' : moved}`,
    })
  return found
}

function crowd({ users }: Diagnosis): Finding[] {
  if (users === undefined || users.count <= users.capacity) return []
  return [
    {
      about: 'processes',
      problem: `${users.count} processes use the store directly, and it carries about ${users.capacity} well: each costs all others`,
      change: "run leasehold serve beside the store, and let them connect with via: 'server' or ?via=server (docs/operate/processes.md)",
    },
  ]
}

function clocks({ measured: { drift, stall }, before, wall }: Diagnosis): Finding[] {
  const found: Finding[] = []
  if (Math.abs(drift) > DRIFT_PPM)
    found.push({
      about: 'clocks',
      problem: `the wall clock of this machine runs apart from its monotonic clock by ${Math.round(Math.abs(drift))} ppm; 5,000 are allowed for`,
      change: 'check its time synchronisation: it may be stepping or slewing the clock',
    })
  const ahead = Math.max(0, ...before.leases.map(({ since }) => since - wall))
  if (ahead > 5_000)
    found.push({
      about: 'clocks',
      problem: `a lease was granted ${inWords(ahead)} in the future of this machine: wall clocks disagree. Leases are safe, but times that people see are wrong`,
      change: 'synchronise the clocks of the machines that use this log',
    })
  if (stall > 100)
    found.push({
      about: 'stalls',
      problem: `a timer of this process fired ${inWords(stall)} late: the machine is overloaded`,
      change: `holders on it need ttls well above ${inWords(10 * stall)}, or fewer neighbours`,
    })
  return found
}

function latencies({ measured: { write, read } }: Diagnosis): Finding[] {
  if (write.longest < 1_000) return []
  return [
    {
      about: 'store',
      problem: `a write took ${inWords(write.longest)} (half of them under ${inWords(write.median)}), a read at the end of the log ${inWords(read.longest)}`,
      change: `use ttls of at least ${inWords(LEAST_ROUND_TRIPS * write.longest)}, or find out why the store is slow`,
    },
  ]
}

function shortTtls({ before, measured: { write } }: Diagnosis): Finding[] {
  return before.leases
    .filter(({ status, ttl }) => status === 'live' && ttl < LEAST_ROUND_TRIPS * write.longest)
    .map(lease => ({
      about: nameOf(lease),
      problem: `its ttl of ${inWords(lease.ttl)} is less than ${LEAST_ROUND_TRIPS} round trips of ${inWords(write.longest)}: one slow answer loses it`,
      change: `use a ttl of at least ${inWords(LEAST_ROUND_TRIPS * write.longest)}`,
    }))
}

/** A lease that is renewed at half of its ttl never has much less than half of it left. */
function lateRenewals({ before, after, between }: Diagnosis): Finding[] {
  const later = new Map(after.leases.map(lease => [lease.lease, lease]))
  return before.leases.flatMap(lease => {
    const next = later.get(lease.lease)
    if (lease.status !== 'live' || next?.status !== 'live' || next.ttl <= 0) return []
    const least = Math.min(lease.remaining, next.remaining)
    const renewed = next.remaining > lease.remaining - between / 2
    if (least >= next.ttl / 4) return []
    return [
      {
        about: nameOf(lease),
        problem: `only ${inWords(least)} of its ttl of ${inWords(next.ttl)} were left, and it was ${renewed ? 'renewed late' : 'not renewed while we looked'}: its holder ${lease.holder} stalls, is cut off, or renews by hand`,
        change: 'look at its holder; use a longer ttl, or heartbeat: worker if its event loop is blocked',
      },
    ]
  })
}

function flapping({ histories }: Diagnosis): Finding[] {
  return histories.flatMap(({ resource, past }) => {
    const lapsed = past.filter(({ cause }) => cause === 'lapsed' || isLossCause(cause)).length
    if (past.length < 4 || lapsed * 2 < past.length) return []
    return [
      {
        about: resource,
        problem: `${lapsed} of its last ${past.length} leases lapsed instead of being released: its holders die, or their ttl is too short for their stalls`,
        change: 'release when the work is done; if the holders do not die, use a longer ttl',
      },
    ]
  })
}

function queues({ before, after, wall }: Diagnosis): Finding[] {
  const tokens = new Map(before.resources.map(({ resource, grants }) => [resource, grants.map(({ token }) => token).join()]))
  return after.resources.flatMap(({ resource, grants, queue, capacity }) => {
    const [first] = queue
    if (first === undefined) return []
    const waited = wall - first.since
    if (grants.length === 0)
      return [
        {
          about: resource,
          problem: `${queue.length} wait for it and it is not held: ${capacity === 0 ? 'its capacity is 0' : `the first wants ${first.units} of ${capacity} units, or other resources too`}`,
          change: capacity === 0 ? 'raise its capacity by a policy' : `run: leasehold explain ${resource}`,
        },
      ]
    const held = wall - Math.min(...grants.map(({ since }) => since))
    const same = tokens.get(resource) === grants.map(({ token }) => token).join()
    if (!same || waited < LONG_WAIT || held < LONG_WAIT) return []
    return [
      {
        about: resource,
        problem: `its queue makes no progress: ${grants[0]!.holder} has held it for ${inWords(held)}, and ${first.holder} waits for ${inWords(waited)} (${queue.length} in all)`,
        change: `set a policy maxHold, or run: leasehold break ${resource}`,
      },
    ]
  })
}

function frozen({ after }: Diagnosis): Finding[] {
  return after.leases
    .filter(({ status, remaining }) => status === 'frozen' && remaining > 60_000)
    .map(lease => ({
      about: nameOf(lease),
      problem: `it was ended, and stays frozen for another ${inWords(lease.remaining)} because its holder has not said that it stopped`,
      change: 'release it by its holder; shorter ttls make this wait shorter',
    }))
}

function services({ services }: Diagnosis): Finding[] {
  return services.flatMap(({ service, suppressed, preserving, suspect, instances }) => [
    ...(suppressed > 0
      ? [
          {
            about: `service ${service}`,
            problem: `${suppressed} instances come and go too often and are suppressed`,
            change: 'look at why they restart',
          },
        ]
      : []),
    ...(preserving
      ? [
          {
            about: `service ${service}`,
            problem: `${suspect} of ${instances} instances are silent at once, so lapses are slowed`,
            change: 'look at the network between them and this server',
          },
        ]
      : []),
  ])
}

function nameOf({ lease, grants }: LeaseView): string {
  return grants.length === 0 ? `lease ${lease}` : `${grants[0]!.resource} (lease ${lease})`
}
