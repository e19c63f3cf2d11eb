/** Mistakes of a store, planted into the store in memory (see planted.ts). */
import type { Planted } from './planted-mistake.ts'

export const STORE_BUGS: readonly Planted[] = [
  {
    name: 'a log that lost its tail goes unnoticed',
    file: 'src/store/memory.js',
    find: 'if (found.nonce !== nonce)',
    put: 'if (false)',
    expected: ['S24', 'S22', 'S9', 'S13', 'S3', 'S6', 'S1'],
    profiles: ['servers', 'embedded'],
  },
  {
    name: 'two processes own one store',
    file: 'src/store/memory.js',
    find: 'if (this.#owner) {',
    put: 'if (false) {',
    expected: ['S20'],
    profiles: ['moving'],
  },
]
