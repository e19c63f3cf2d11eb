/**
 * Traces of jobs, from CSV. Two forms are known by their first line: tasks with `scheduled_time` and `deletion_time` in seconds and the resources they asked
 * for (alibaba-gpu-2023.csv), and run times in seconds, one a line, under the heading `runtime` (philly-runtimes.csv).
 */
import { readFileSync } from 'node:fs'

export interface Job {
  /** When it was submitted and when it started, in ms. */
  readonly created: number
  readonly start: number
  /** It ran for this long, in ms. */
  readonly ms: number
  /** The class of its work: a path under the name of the trace. */
  readonly class: string
  readonly user: string
  readonly gpus: number
  /** The trace says that it failed. */
  readonly failed: boolean
  /** In the replay its holder dies at its end, without a release. */
  readonly dies: boolean
}

export interface Trace {
  readonly name: string
  readonly jobs: readonly Job[]
  /** True if jobs overlap, as the times of the trace say. Otherwise one follows the other. */
  readonly timed: boolean
}

/** A generator of numbers from 0 to 1 (mulberry32), the same for the same seed. */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }
}

/** The share of jobs whose holder dies at the end. */
const DYING = 0.1

export function readTrace(file: string, seed: number): Trace {
  const text = readFileSync(file, 'utf8')
  const name = file
    .split('/')
    .at(-1)!
    .replace(/\.csv$/, '')
  return parseTrace(name, text, seed)
}

/** Throws an error that says what is wrong with the text. */
export function parseTrace(name: string, text: string, seed: number): Trace {
  const [head = '', ...lines] = text.trim().split(/\r?\n/)
  const columns = head.split(',').map(column => column.trim())
  const deaths = randomFrom(seed)
  if (columns.includes('scheduled_time') && columns.includes('deletion_time')) {
    const jobs = lines.flatMap(line => taskOf(columns, line.split(',')))
    jobs.sort((a, b) => a.start - b.start)
    return { name, timed: true, jobs: jobs.map(job => ({ ...job, dies: deaths() < DYING })) }
  }
  if (columns.includes('runtime')) {
    const place = columns.indexOf('runtime')
    const runtimes = shuffled(
      lines.map(line => Number(line.split(',')[place])).filter(seconds => seconds >= 0),
      randomFrom(42),
    )
    const plain = { created: 0, start: 0, class: 'job', user: '', gpus: 1, failed: false }
    return { name, timed: false, jobs: runtimes.map(seconds => ({ ...plain, ms: Math.round(seconds * 1_000), dies: deaths() < DYING })) }
  }
  throw new Error(`${name}: the first line must name the columns scheduled_time and deletion_time, or runtime; it is: ${head.slice(0, 80)}`)
}

/** A task that asked for GPUs, started and ended. */
function taskOf(columns: readonly string[], fields: readonly string[]): Job[] {
  const field = (name: string) => fields[columns.indexOf(name)] ?? ''
  const [start, end, gpus] = [field('scheduled_time'), field('deletion_time'), Number(field('num_gpu'))]
  if (start === '' || end === '' || !(gpus > 0)) return []
  // Commas would be read as separators of labels, slashes as levels.
  const shape = ['qos', 'num_gpu', 'gpu_milli', 'cpu_milli', 'memory_mib'].map(name => `${name}=${field(name)}`).join(',')
  return [
    {
      created: Number(field('creation_time') || start) * 1_000,
      start: Number(start) * 1_000,
      ms: Math.max(0, Math.round((Number(end) - Number(start)) * 1_000)),
      class: `gpu/${shape}`,
      user: field('qos'),
      gpus,
      failed: field('pod_phase') === 'Failed',
      dies: false,
    },
  ]
}

function shuffled<T>(list: readonly T[], random: () => number): T[] {
  const copy = [...list]
  for (let i = copy.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1))
    ;[copy[i], copy[j]] = [copy[j]!, copy[i]!]
  }
  return copy
}
