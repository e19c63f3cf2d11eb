import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Files of this run; removed at its end. */
export const scratch = mkdtempSync(join(tmpdir(), 'leasehold-bench-'))

export function seconds() {
  const [s, ns] = process.hrtime()
  return s + ns / 1e9
}

/** Operations a second of `each`, called with 0, 1, 2, …, with so many under way at a time, for about so long. */
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

/** Operations a second of `each` without any waiting. */
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

/** `await using`, which Node has only from 24 on. Timers of a replica keep no process alive, so something else must. */
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
