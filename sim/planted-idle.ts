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
]
