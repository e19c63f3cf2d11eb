// One replica process with its holders, on the built library. It writes each note to a file at once, synchronously: notes that a killed
// process had only buffered would be missing from the history, and they are the most interesting ones.
//
// node child.mjs '{"module":"store/postgres.js","name":"PostgresStore","options":{…},"me":"r1.4","history":"/tmp/…","ttl":1000,…}'

import { openSync, writeSync } from 'node:fs'
import { systemClock } from '../../../dist/clock.js'
import { Leases } from '../../../dist/leases.js'
import { propose } from '../../../dist/lessor/propose.js'
import { Replica } from '../../../dist/replica/replica.js'

const { module, name, options, me, history, ttl, holders, resources, snapshotRecords, timeout } = JSON.parse(process.argv[2])
const file = openSync(history, 'a')
const { [name]: Store } = await import(new URL(`../../../dist/${module}`, import.meta.url))

const now = () => systemClock.now()
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))
const pick = list => list[Math.floor(Math.random() * list.length)]
let stopping = false

/** `t` is the machine's monotonic clock, which all its processes share. */
function note(kind, facts, t = now()) {
  writeSync(file, `${JSON.stringify({ t, kind, who: me, ...facts })}\n`)
}

/** The replica as its holders use it: each acknowledged renewal is written to the history before the holder sees it. */
function recorded(lessor) {
  return new Proxy(lessor, {
    get(target, property) {
      if (property === Symbol.asyncDispose) return async () => {} // several holders share it
      if (property !== 'submit') {
        const value = Reflect.get(target, property)
        return typeof value === 'function' ? value.bind(target) : value
      }
      return (command, asked, completion) => {
        const sent = now()
        target.submit(command, asked, {
          settle(outcome) {
            if (outcome.kind === 'renewed')
              for (const [i, lease] of command.leases.entries())
                if (outcome.ttls[i] > 0) note('renewed', { lease, sent, ttl: outcome.ttls[i] })
            completion.settle(outcome)
          },
          fail: error => completion.fail(error),
        })
      }
    },
  })
}

async function opened() {
  for (;;) {
    try {
      return await Replica.open(new Store(options), { snapshotRecords, timeout })
    } catch (error) {
      note('error', { what: 'open', code: error.code ?? 'BROKEN', message: String(error.stack ?? error) })
      if (error.code !== 'UNAVAILABLE' && error.code !== 'UNKNOWN') throw error
      await pause(50)
    }
  }
}

/** Holds a lease and checks it as an application would: between two pieces of work. Returns whether it was lost. */
async function hold(who, lease, until) {
  let isLost = false
  const lost = () => {
    isLost = true
    note('lost', { who, lease: lease.id, code: lease.signal.reason.code, message: lease.signal.reason.message })
  }
  lease.signal.addEventListener('abort', lost, { once: true })
  try {
    while (now() < until && !stopping) {
      const t = now()
      if (!lease.held) break
      note('held', { who, lease: lease.id }, t)
      await pause(Math.min(40, Math.max(1, until - now())))
    }
  } finally {
    lease.signal.removeEventListener('abort', lost)
  }
  return isLost
}

async function live(leases, who) {
  while (!stopping) {
    const names = Math.random() < 0.15 ? [resources[0], pick(resources.slice(1))] : [pick(resources)]
    const forgetful = Math.random() < 0.05
    const wait = Math.random() < 0.6
    try {
      const asked = { ttl, ...(wait ? { wait: 2 * ttl } : {}), ...(forgetful && { renew: 'never' }) }
      const lease = wait ? await leases.acquire(names, asked) : await leases.tryAcquire(names, asked)
      if (lease === undefined) {
        await pause(5 + Math.random() * 30)
        continue
      }
      const t = now()
      const remaining = lease.remaining()
      note('believes', { who, lease: lease.id, tokens: lease.tokens, until: t + remaining }, t)
      const longest = Math.random() < 0.1 ? ttl * 1.5 : ttl / 8
      const isLost = await hold(who, lease, forgetful ? Number.POSITIVE_INFINITY : now() + Math.random() * longest)
      // At the end every lease is released, also those to be abandoned, so that the next holder does not overlap.
      if (isLost || (forgetful && !stopping)) continue
      note('releasing', { who, lease: lease.id })
      await lease.release()
    } catch (error) {
      if (error.code === undefined) note('error', { who, what: 'holder', code: 'BROKEN', message: String(error.stack ?? error) })
      else if (!['TIMEOUT', 'HELD', 'LOST', 'GONE'].includes(error.code))
        note('error', { who, what: 'holder', code: error.code, message: error.message })
      await pause(20)
    }
  }
}

/** Requests a resource that no other holder requests, once and without a retry: the answer must agree with the log. */
async function probe(replica) {
  for (let n = 0; !stopping; n++) {
    const resource = `probe/${me}/${n}`
    note('asks', { resource })
    try {
      const outcome = await propose(replica, { kind: 'acquire', holder: `${me}/probe`, ttl, wants: [{ resource }] })
      note('answered', {
        resource,
        outcome: outcome.kind,
        ...(outcome.kind === 'granted' && { lease: outcome.lease, token: outcome.tokens[0] }),
      })
    } catch (error) {
      note('answered', { resource, outcome: error.code ?? 'BROKEN', message: error.message })
    }
    await pause(20 + Math.random() * 60)
  }
}

const replica = await opened()
const lessor = recorded(replica)
const others = Array.from({ length: holders }, (_, i) => new Leases(lessor, { holder: `${me}/${i}` }))
replica.signal.addEventListener('abort', () => {
  const { reason } = replica.signal
  if (!stopping) note('stopped', { code: reason?.code ?? 'BROKEN', message: String(reason?.message ?? reason) })
})
note('begins', { pid: process.pid })
process.send(['begins'])
const living = Promise.all([probe(replica), ...others.map((leases, i) => live(leases, `${me}/${i}`))])

const calls = {
  /** Holders release their leases; the replica stays open. */
  async rest() {
    stopping = true
    await living
    await Promise.allSettled(others.map(leases => leases[Symbol.asyncDispose]()))
    note('rests', {})
  },
  async state() {
    const { revision } = await replica.read({ kind: 'summary' }, { consistent: true })
    return { index: replica.index, revision, hash: replica.hash() }
  },
  async close() {
    await replica[Symbol.asyncDispose]()
    process.disconnect()
  },
}

process.on('message', ([id, call]) => {
  calls[call]().then(
    value => process.connected && process.send([id, true, value]),
    error => process.connected && process.send([id, false, { code: error.code, message: error.message }]),
  )
})
process.on('disconnect', () => process.exit())
