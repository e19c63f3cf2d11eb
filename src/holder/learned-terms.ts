/**
 * `ttl: 'auto'`: reads what the log knows of the class of some work, and plans the terms of its leases. What was read is used for a while, so that a
 * process that acquires often does not read each time. If it cannot be read, the default ttl is used.
 */
import { type Duration, inWords, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import { expectedDuration } from '../learn/expectation.ts'
import { RecentLeases } from '../learn/recent.ts'
import { Sketch } from '../learn/sketch.ts'
import { explainTerm, planTerm, type TermOptions, type TermPlan } from '../learn/term.ts'
import { allowedTtls } from '../lessor/ttl-range.ts'
import type { Operations } from './operations.ts'

/** Options of `ttl: 'auto'` and `expect: 'auto'`. */
export interface LearnOptions {
  /**
   * The class of work whose past decides: a path that begins with the first segment of the resource, such as `'jobs/nightly'`. A class without a past
   * learns from the class above it.
   * @default the name of the resource up to its last slash, and the values of `labels`
   */
  readonly class?: string | undefined
  /** The names of labels of the lease that tell classes apart, such as `['model']`. */
  readonly labels?: readonly string[] | undefined
  /**
   * One renewal is worth this much: as long as a resource may be idle after its holder died, to save one renewal.
   * @default '1s'
   */
  readonly renewalCost?: Duration | undefined
}

/** The durations that the log knows of a class of work. */
export interface LearnedTerm {
  readonly class: string
  readonly plan: TermPlan
  /** Such a lease is probably held this long, in ms: half of them are held for less. Undefined: too little is known. */
  readonly expect: number | undefined
  /** Why, in one sentence with its numbers. */
  readonly explanation: string
}

/** The label by which the log counts how long the leases of a class are held (kernel/rule/learn.ts). */
export const CLASS_LABEL = 'learn'

/** An answer is used for this long. */
const FRESH = 30_000
/** An acquire waits this long for what is known, and goes on without it. */
const TIMEOUT = 1_000
const MAX_KEPT = 256

interface Kept {
  readonly at: number
  readonly learned: Promise<LearnedTerm | undefined>
}

export class LearnedTerms {
  readonly #operations: Operations
  readonly #fallback: number
  readonly #kept = new Map<string, Kept>()
  readonly #recent = new RecentLeases()

  constructor(operations: Operations, fallback: number) {
    this.#operations = operations
    this.#fallback = fallback
  }

  /** Undefined: it could not be read in time, or the lessor is of an older build. */
  get(names: readonly string[], options: LearnOptions, labels: Readonly<Record<string, string>>): Promise<LearnedTerm | undefined> {
    const name = classOf(names, options, labels)
    const renewalCost = milliseconds(options.renewalCost ?? '1s', 'renewalCost')
    const key = JSON.stringify([name, renewalCost, names])
    const now = this.#operations.clock.now()
    const kept = this.#kept.get(key)
    if (kept !== undefined && now - kept.at < FRESH) return kept.learned
    const learned = this.#operations.within(TIMEOUT, this.read(names, options, labels)).catch(() => {
      this.#kept.delete(key) // the next acquire tries again
      return undefined
    })
    this.#kept.delete(key)
    this.#kept.set(key, { at: now, learned })
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= MAX_KEPT) break
      this.#kept.delete(oldest)
    }
    return learned
  }

  async read(names: readonly string[], options: LearnOptions, labels: Readonly<Record<string, string>>): Promise<LearnedTerm> {
    const { lessor } = this.#operations
    const name = classOf(names, options, labels)
    const renewalCost = milliseconds(options.renewalCost ?? '1s', 'renewalCost')
    const [{ value: views }, { value: policies }] = await Promise.all([
      lessor.read({ kind: 'durations', class: name }),
      lessor.read({ kind: 'policies' }),
    ])
    const levels = views.map(view => Sketch.from(view))
    const recent = this.#recent.of(levels)
    const terms: TermOptions = { renewalCost, fallback: this.#fallback, ...boundsOf(names, policies), recent }
    const plan = planTerm(levels, terms)
    return { class: name, plan, expect: expectedDuration(views), explanation: explainTerm(plan, terms) }
  }
}

/** Throws `INVALID` for options that cannot work. */
export function classOf(names: readonly string[], options: LearnOptions, labels: Readonly<Record<string, string>>): string {
  const [resource] = names
  if (resource === undefined)
    throw new LeaseError('INVALID', "ttl: 'auto' learns from the names of resources, and this lease has none: give it a ttl")
  if (options.class !== undefined) {
    if (options.class.split('/')[0] === resource.split('/')[0] && options.class.length <= 256) return options.class
    throw new LeaseError(
      'INVALID',
      `the class ${options.class} must begin with the first segment of ${resource}, and have at most 256 characters: write '${resource.split('/')[0]}/…'`,
      { facts: { option: 'learn' } },
    )
  }
  const slash = resource.lastIndexOf('/')
  const prefix = slash === -1 ? resource : resource.slice(0, slash)
  const chosen = (options.labels ?? []).filter(label => labels[label] !== undefined).map(label => `${label}=${labels[label]!}`)
  return chosen.length === 0 ? prefix : `${prefix}/${chosen.join(',').replaceAll('/', '_')}`.slice(0, 256)
}

/** The ttls that policies allow for all of the names. */
function boundsOf(names: readonly string[], policies: Parameters<typeof allowedTtls>[1]): ReturnType<typeof allowedTtls> {
  const { min, max } = allowedTtls(names, policies)
  return { min, max: Math.max(min, max) }
}

/** For people: what such a lease will probably take. */
export function explainExpectation({ expect }: LearnedTerm): string {
  return expect === undefined
    ? 'How long it will be held is not known yet.'
    : `Half of such leases were held for less than ${inWords(expect)}.`
}
