/** Mistakes of replicas that read their log now and then (see planted.ts). */
import type { Planted } from './planted-mistake.ts'

const profiles = ['idle'] as const

export const IDLE_BUGS: readonly Planted[] = [
  {
    name: 'a replica that reads now and then counts the time before the read that showed a renewal',
    file: 'src/replica/timekeeper.js',
    find: 'this.#moment = this.#time.now();',
    put: 'this.#moment = this.#isIdle ? Math.min(this.#time.now(), this.idleSince ?? Infinity) : this.#time.now();\n        this.#clock.soon(() => (this.idleSince = this.#time.now()));',
    expected: ['S4', 'S1'],
    profiles,
  },
  {
    name: 'a replica that reads now and then ends a lease after half of its term',
    file: 'src/replica/timekeeper.js',
    find: 'if (now >= countdown.zero + this.#countdowns.duration(countdown))',
    put: 'if (now >= countdown.zero + this.#countdowns.duration(countdown) * (this.#isIdle ? 0.5 : 1))',
    expected: ['S4', 'S1'],
    profiles,
  },
  {
    name: 'a replica that reads now and then proposes no ends',
    file: 'src/replica/timekeeper.js',
    find: 'if (this.#stopped || !this.#isIdle || this.#judging || this.isReplaying)',
    put: 'if (true)',
    expected: ['S5', 'L1'],
    profiles,
  },
  {
    name: 'a replica reads only with its renewals',
    file: 'src/replica/activity.js',
    find: 'this.read().catch(() => { }); // the next read is due after the same time',
    put: '',
    expected: ['S5', 'L1'],
    profiles,
  },
  {
    name: 'a replica that begins to follow the log goes on setting timers for its own leases only',
    file: 'src/replica/activity.js',
    find: 'this.#options.timekeeper.isIdle = false;',
    put: '',
    expected: ['S5', 'L1'],
    profiles,
  },
  {
    name: 'a survivor that has not read all lost records reuses their numbers',
    file: 'src/kernel/rule/govern.js',
    find: 'raiseCounters(state);',
    put: '{}',
    expected: ['S3', 'S6', 'S7'],
    profiles,
  },
  {
    name: 'the quiet period after a loss is shorter than terms that its survivor has not read',
    file: 'src/replica/log.js',
    find: '(this.#readEvery ?? 0) * NOTICED',
    put: '0',
    expected: ['S1'],
    profiles,
  },
]
