// Rounds in turns: peer, ours, next peer, ours, … A disk or a neighbour on the same machine may be ten times slower a minute later, so each peer is compared with
// our rounds next to its own. A peer that fails is reported as not measured and leaves; the others go on.
import { cpuOf } from './cpu.mjs'
import { seconds } from './measure.mjs'
import { median, oneLine } from './row.mjs'

/** No single measurement takes this many ms. One that does is stuck. */
const STUCK = 90_000

/**
 * Measures `ours` and each of `peers` in `rounds` rounds, and returns the figures of a row: `rounds`, `peers`, and `failed` if ours failed.
 *
 * A peer whose round takes longer than `slowAfter` ms is not asked for another one: with many requests in flight, a slow server needs seconds to answer each of them once.
 *
 * A contender has a `name`, and optionally `about`, `want`, `pids` (of its server) and `failed` (why it did not even start). `measure(contender)` returns the
 * figure of one round, or `{ value, count }` with the number of operations: then the processor time of the server is measured for each of them.
 */
export async function inRounds(
  ours,
  peers,
  { rounds, measure, warmUp = measure, stuckAfter = STUCK, slowAfter = Number.POSITIVE_INFINITY, now = () => performance.now() },
) {
  const [mine, cpu] = [[], []]
  const others = peers.map(({ name, about, want, failed }) => ({ name, about, want, failed, rounds: [], beside: [], cpu: [] }))
  const slow = new Set()
  const tried = async (contender, work, cpus = []) => {
    const before = cpuOfAll(contender)
    const [result, failed] = await bounded(() => work(contender), stuckAfter).then(
      result => [result, undefined],
      error => [undefined, oneLine(error?.message ?? error)],
    )
    const { value, count } = typeof result === 'object' ? result : { value: result }
    const used = cpuOfAll(contender) - before
    if (count > 0 && Number.isFinite(used)) cpus.push((used * 1_000) / count)
    return { value, failed }
  }
  if (ours.failed !== undefined) return { failed: oneLine(ours.failed), rounds: [], peers: others }
  const first = await tried(ours, warmUp)
  if (first.failed !== undefined) return { failed: first.failed, rounds: [], peers: others }
  for (const [i, peer] of peers.entries()) {
    if (peer.failed === undefined) others[i].failed = (await tried(peer, warmUp)).failed
  }
  for (let round = 0; round < rounds; round++) {
    for (const [i, other] of others.entries()) {
      if (other.failed !== undefined || slow.has(other)) continue
      const began = now()
      const theirs = await tried(peers[i], measure, other.cpu)
      if (now() - began > slowAfter) slow.add(other)
      other.failed = theirs.failed
      const beside = await tried(ours, measure, cpu)
      if (beside.failed !== undefined) return { failed: beside.failed, rounds: [], peers: others }
      mine.push(beside.value)
      if (theirs.failed !== undefined) continue
      other.rounds.push(theirs.value)
      other.beside.push(beside.value)
    }
    // Without any peer, ours is measured alone.
    if (others.every(({ failed }) => failed !== undefined)) {
      const alone = await tried(ours, measure, cpu)
      if (alone.failed !== undefined) return { failed: alone.failed, rounds: [], peers: others }
      mine.push(alone.value)
    }
  }
  return { rounds: mine, cpu, peers: others }
}

/** ms of processor time; NaN where it is not known. */
function cpuOfAll({ pids = [] }) {
  return pids.length === 0 ? Number.NaN : pids.reduce((sum, pid) => sum + (cpuOf(pid) ?? Number.NaN), 0)
}

/** A rate per second, with the number of operations that it stands for. `work` does nothing else. */
export async function perSecond(work) {
  const began = seconds()
  const value = await work()
  return { value, count: value * (seconds() - began) }
}

async function bounded(work, ms) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no result after ${ms / 1_000} s`)), ms)
  })
  try {
    return await Promise.race([work(), late])
  } finally {
    clearTimeout(timer)
  }
}

/** The median time of `each(i)` in µs, one at a time. `after(i, answer)` is not counted. */
export async function microseconds(each, options) {
  return (await timed(each, options)).value
}

/** As `microseconds`, with the number of calls. */
export async function timed(each, { forSeconds, after = () => {} }) {
  const took = []
  const end = performance.now() + forSeconds * 1_000
  for (let i = 0; performance.now() < end || took.length === 0; i++) {
    const began = performance.now()
    const answer = await each(i)
    took.push((performance.now() - began) * 1_000)
    await after(i, answer)
  }
  return { value: median(took), count: took.length }
}
