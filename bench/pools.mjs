// Benchmark of pools: what one decision and one explanation cost, by the length of the queue. 1,000 members, all taken; every waiter has its own account.
import { apply } from '../dist/kernel/apply.js'
import { createState } from '../dist/kernel/state.js'
import { explainWaiter } from '../dist/pool/explain.js'
import { poolView } from '../dist/replica/pool-view.js'
import { percentile, seconds } from './measure.mjs'
import { atMost } from './row.mjs'

const POOL = 'gpus'
const MEMBERS = 1_000
const QUEUES = [10, 100, 1_000, 10_000]
/** Filling a long queue takes longer than measuring it. */
const QUICK_QUEUES = [10, 1_000]
const NO_EFFECTS = { events: [], timer() {} }

class Kernel {
  state = createState()
  #holders = []

  constructor(queue, waiters) {
    this.state.index = 1
    this.do({ kind: 'policy', prefix: POOL, rules: { queue } })
    const offer = this.do({ kind: 'acquire', holder: 'host', ttl: 60_000, wants: [] })
    for (let i = 0; i < MEMBERS; i++) {
      const labels = { host: `h${i >> 3}`, model: i % 2 === 0 ? 'a100' : 'h100', mem: '80' }
      this.do({ kind: 'put', lease: offer.lease, key: `pool/${POOL}/m${i}`, value: JSON.stringify({ labels, units: 1 }) })
    }
    for (let i = 0; i < MEMBERS; i++) this.#holders.push(this.take(`holder-${i}`).lease)
    for (let i = 0; i < waiters; i++) this.take(`user-${i}`)
  }

  do(command) {
    NO_EFFECTS.events.length = 0
    return apply(this.state, { command }, NO_EFFECTS)
  }

  take(holder) {
    return this.do({ kind: 'acquire', holder, ttl: 60_000, wants: [], wait: true, pool: { pool: POOL, expect: 3_600_000 } })
  }

  /** A holder gives its member back, and the waiter that gets it is replaced by another. */
  release(i) {
    const lease = this.#holders[i % MEMBERS]
    const began = seconds()
    this.do({ kind: 'release', lease })
    const took = seconds() - began
    const granted = NO_EFFECTS.events.find(({ type }) => type === 'granted')
    this.#holders[i % MEMBERS] = granted.lease
    return took
  }
}

function milliseconds(times) {
  return (
    percentile(
      times.sort((a, b) => a - b),
      0.5,
    ) * 1_000
  )
}

function timed(work) {
  const began = seconds()
  work()
  return seconds() - began
}

export function pools(report, { quick }) {
  for (const queue of ['fifo', 'fit', 'backfill', 'fair'])
    for (const waiters of quick ? QUICK_QUEUES : QUEUES) {
      const kernel = new Kernel(queue, waiters)
      const releases = []
      const turns = queue === 'fifo' || queue === 'fit' ? 400 : 40
      for (let i = 0; i < turns; i++) {
        releases.push(kernel.release(i))
        kernel.take(`later-${i}`)
      }
      const of = `pool, ${queue}, ${waiters.toLocaleString('en')} waiting`
      const row = (name, times, want) => report({ name: `${of}: ${name}`, unit: 'ms', value: milliseconds(times), want })
      row('a release and the grant that follows', releases, atMost(1))
      const { state } = kernel
      const last = [...state.pools.get(POOL).queue].at(-1).id
      const views = Array.from({ length: 15 }, () => timed(() => poolView(state, POOL, { limit: 100 })))
      row('the first 100 of the queue', views)
      const lasts = Array.from({ length: 15 }, () => timed(() => explainWaiter(poolView(state, POOL, { lease: last }), last)))
      row('explain the last waiter', lasts, atMost(5))
    }
}
