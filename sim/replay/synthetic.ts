/**
 * Made-up traces that a learner of terms finds hard: work that always takes the same time, of two lengths, with heavy tails, that changes while it is
 * watched, of many classes, and of absurd lengths. Each is made from a seed, so that equal seeds give equal traces.
 */
import { Sketch } from '../../src/learn/sketch.ts'
import { planTerm } from '../../src/learn/term.ts'
import { type Job, randomFrom, type Trace } from './trace.ts'

/** The next duration in ms and its class, from its number, of how many, and a source of random numbers. */
type Draw = (i: number, count: number, random: () => number) => { readonly ms: number; readonly class?: string }

const SECOND = 1_000
const HOUR = 3_600_000
const DAY = 86_400_000
const YEAR = 365 * DAY

const pareto = (least: number, shape: number, random: () => number) => least * (1 - random()) ** (-1 / shape)
const exponential = (mean: number, random: () => number) => -mean * Math.log(1 - random())
const normal = (random: () => number) => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random())

const DRAWS: Readonly<Record<string, Draw>> = {
  'always 10 s': () => ({ ms: 10 * SECOND }),
  'always 95 s': () => ({ ms: 95 * SECOND }),
  'always 1 h': () => ({ ms: HOUR }),
  'about 10 min': (_, __, random) => ({ ms: 600 * SECOND * (0.95 + 0.1 * random()) }),
  '5 s or 2 h': (_, __, random) => ({ ms: random() < 0.7 ? 5 * SECOND : 2 * HOUR }),
  '20 s or 50 s': (_, __, random) => ({ ms: (random() < 0.5 ? 20 : 50) * SECOND }),
  'heavy tail': (_, __, random) => ({ ms: pareto(2 * SECOND, 0.7, random) }),
  'very heavy tail': (_, __, random) => ({ ms: pareto(SECOND, 0.4, random) }),
  'log-normal': (_, __, random) => ({ ms: Math.exp(Math.log(300 * SECOND) + 1.5 * normal(random)) }),
  exponential: (_, __, random) => ({ ms: exponential(1_200 * SECOND, random) }),
  'uniform to 1 h': (_, __, random) => ({ ms: HOUR * random() }),
  'growing from 10 s to 10 h': (i, count) => ({ ms: 10 * SECOND * 3_600 ** (i / count) }),
  'falling from 10 h to 10 s': (i, count) => ({ ms: 10 * SECOND * 3_600 ** (1 - i / count) }),
  'suddenly long': (i, count, random) => ({ ms: exponential(i < count / 2 ? 20 * SECOND : 2 * HOUR, random) }),
  'suddenly short': (i, count, random) => ({ ms: exponential(i < count / 2 ? 2 * HOUR : 20 * SECOND, random) }),
  'two classes, alternating': (i, _, random) =>
    i % 2 === 0 ? { ms: exponential(8 * SECOND, random), class: 'job/a' } : { ms: exponential(3 * HOUR, random), class: 'job/b' },
  'two classes that change places': (i, count, random) => {
    const isShort = (i % 2 === 0) === i < count / 2
    return { ms: exponential(isShort ? 8 * SECOND : 3 * HOUR, random), class: i % 2 === 0 ? 'job/a' : 'job/b' }
  },
  'a class for every ten jobs': (i, _, random) => ({ ms: pareto(2 * SECOND, 0.7, random), class: `job/${Math.floor(i / 10)}` }),
  'classes that say nothing': (_, __, random) => ({ ms: exponential(600 * SECOND, random), class: `job/${Math.floor(20 * random())}` }),
  // Against a learner that counts the past without forgetting: it is wrong about the present each time the work changes.
  'regimes of 100 jobs': (i, _, random) => ({ ms: exponential(Math.floor(i / 100) % 2 === 0 ? 10 * SECOND : HOUR, random) }),
  'regimes that get longer': (i, _, random) => ({ ms: exponential(Math.floor(Math.log2(i + 1)) % 2 === 0 ? 10 * SECOND : HOUR, random) }),
  '10 s and 1 h in turns': i => ({ ms: i % 2 === 0 ? 10 * SECOND : HOUR }),
  'a saw from 10 s to 1 h': i => ({ ms: 10 * SECOND * 360 ** ((i % 50) / 50) }),
  'heavy tail that drifts': (i, count, random) => ({ ms: pareto(SECOND * 1_000 ** (i / count), 0.8, random) }),
  '30 s, and each hundredth 12 h': i => ({ ms: i % 100 === 99 ? 12 * HOUR : 30 * SECOND }),
  'all zero': () => ({ ms: 0 }),
  'all 300 days': () => ({ ms: 300 * DAY }),
  'zero or 300 days': (_, __, random) => ({ ms: random() < 0.99 ? 0 : 300 * DAY }),
}

const PLAIN = { created: 0, start: 0, class: 'job', user: '', gpus: 1, failed: false } as const

export const SYNTHETIC: readonly string[] = Object.keys(DRAWS)

/** The name of a trace that depends on what the learner decides. */
export const ADVERSARY = 'just after the first renewal'

/** Made while the learner watches: each job ends just after the renewal at half of the first term that the learner would give it. */
export function adversarialTrace(count: number, seed: number, c: number): Trace {
  const deaths = randomFrom(seed)
  const past = new Sketch()
  let next = { first: 30_000, ended: 0 }
  const jobs = Array.from({ length: count }, (): Job => {
    // As the replay does: a plan is made again when the past has grown by a tenth.
    if (past.ended >= next.ended) {
      const plan = planTerm([past], { renewalCost: c * 1_000, min: 100, max: DAY, fallback: 30_000 })
      next = { first: plan.first, ended: past.ended * 1.1 + 1 }
    }
    const ms = Math.round(next.first / 2) + 1
    const dies = deaths() < 0.1
    past.add(ms, dies)
    return { ...PLAIN, ms, dies }
  })
  return { name: ADVERSARY, jobs, timed: false }
}

/** Makes a trace by its name. `dying`: the share of the jobs whose holders die at the end. */
export function syntheticTrace(name: string, count: number, seed: number, dying = 0.1): Trace {
  const draw = DRAWS[name]!
  const random = randomFrom(seed)
  const deaths = randomFrom(seed + 1)
  const jobs = Array.from({ length: count }, (_, i): Job => {
    const { ms, ...rest } = draw(i, count, random)
    return { ...PLAIN, ...rest, ms: Math.min(YEAR, Math.round(ms)), dies: deaths() < dying }
  })
  return { name, jobs, timed: false }
}
