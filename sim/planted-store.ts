/** Mistakes of a store, planted into the store in memory and into what stores with a standby share (see planted.ts). */
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
  // Reads of an engine with a standby, which a failover may undo
  {
    name: 'a store shows a record of its own that the standby does not have, after an append of unknown outcome',
    file: 'src/store/confirmed-reads.js',
    find: 'this.#distrusted || unsure.length > 0',
    put: 'this.#distrusted',
    expected: ['S9'],
    profiles: ['failover'],
  },
  {
    name: 'a store shows a record of its own that the standby does not have, before its append is answered',
    file: 'src/store/confirmed-reads.js',
    find: `        this.#unsure.add(nonce);
        try {`,
    put: `        const later = () => this.#unsure.add(nonce);
        append = (inner => () => inner().catch(error => {
            if (error.code === 'UNKNOWN')
                later();
            throw error;
        }))(append);
        try {`,
    expected: ['S9'],
    profiles: ['failover'],
  },
  {
    name: 'a store trusts what it reads on a new connection',
    file: 'src/store/confirmed-reads.js',
    find: 'this.#distrusted || unsure.length > 0',
    put: 'unsure.length > 0',
    expected: ['S9'],
    profiles: ['failover'],
  },
  {
    name: 'a store trusts the answer of an append whose wait for the standby was cancelled',
    file: 'src/store/confirmed-reads.js',
    find: 'const long = clock.now() - began >= longWait;',
    put: 'const long = false;',
    expected: ['S9'],
    profiles: ['failover'],
  },
  {
    name: 'a commit on the new server confirms what was read on the old one',
    file: 'src/store/confirmed-reads.js',
    find: `if (this.#connections !== connections)
            throw`,
    put: `if (false)
            throw`,
    expected: ['S9'],
    profiles: ['failover'],
  },
  {
    name: 'a commit whose wait for the standby was cancelled confirms what was read',
    file: 'src/store/confirmed-reads.js',
    find: `if (clock.now() - began >= longWait)
            throw`,
    put: `if (false)
            throw`,
    expected: ['S9'],
    profiles: ['failover'],
  },
  {
    name: 'a grant is acknowledged again because a read shows it',
    file: 'src/replica/replica.js',
    find: `if (known?.kind === 'refused')`,
    put: 'if (known !== undefined)',
    expected: ['S9'],
    profiles: ['cases'],
  },
]
