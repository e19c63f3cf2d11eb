// Measuring for the benchmarks: throughput, rates, percentiles, and a folder for the files of the run.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

let made

/** The folder for the files of this run, which is removed at its end. Processes that write no file get none. */
export function scratch() {
  if (made !== undefined) return made
  made = mkdtempSync(join(tmpdir(), 'leasehold-bench-'))
  process.once('exit', () => rmSync(made, { recursive: true, force: true }))
  return made
}

export function seconds() {
  const [s, ns] = process.hrtime()
  return s + ns / 1e9
}

/** Operations per second of `each(lane, i)`, with `inFlight` lanes that call it one after the other for about `forSeconds`. */
export async function throughput(each, { inFlight, forSeconds = 3, warmUp = 1 }) {
  const until = (end, count) =>
    Promise.all(
      Array.from({ length: inFlight }, async (_, lane) => {
        for (let i = 0; seconds() < end; i++) {
          await each(lane, i)
          count.done++
        }
      }),
    )
  await until(seconds() + warmUp, { done: 0 })
  const count = { done: 0 }
  const began = seconds()
  await until(began + forSeconds, count)
  return count.done / (seconds() - began)
}

/** Operations per second of a synchronous `each`. */
export function rate(each, { forSeconds = 1 } = {}) {
  for (let i = 0; i < 10_000; i++) each(i)
  const began = seconds()
  let done = 0
  while (seconds() - began < forSeconds) {
    for (let i = 0; i < 1_000; i++) each(done + i)
    done += 1_000
  }
  return done / (seconds() - began)
}

export function percentile(sorted, p) {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * p))]
}

/** Replaces `await using`, which Node has from 24 on. Also keeps the process alive, because the timers of a replica do not. */
export async function using(opening, work) {
  const awake = setInterval(() => {}, 1_000)
  const resource = await opening
  try {
    return await work(resource)
  } finally {
    await resource[Symbol.asyncDispose]()
    clearInterval(awake)
  }
}
