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
    name: 'a renewal passes a record that is not a renewal',
    file: 'src/store/last-marks.js',
    find: 'other <= past.read',
    put: 'true',
    expected: ['S1', 'S4', 'S6'],
    profiles: ['cases', 'idle'],
  },
  {
    name: 'a renewal behind records that its sender has not read begins no epoch',
    file: 'src/kernel/codec/batch.js',
    find: 'if (index - batch.applied > WINDOW || batch.applied >= index) {',
    put: 'if (batch.unread || index - batch.applied > WINDOW || batch.applied >= index) {',
    expected: ['S1', 'S4', 'L1'],
    profiles: ['cases'],
  },
]
