/** Mistakes that only a log which went back shows (see planted.ts). */
import type { Planted } from './planted.ts'

const profiles = ['rollback'] as const

export const ROLLBACK_BUGS: readonly Planted[] = [
  {
    name: 'a log that was put back gives ids and tokens again',
    file: 'src/kernel/state.js',
    find: 'const base = Math.min(state.wall * 100, ORIGIN_LIMIT)',
    put: 'const base = 0',
    expected: ['S3', 'S6'],
    profiles,
  },
  {
    name: 'a client over RESP goes on believing after the log was put back',
    file: 'src/wire/resp/client.js',
    find: 'if (!greeting.continues)',
    put: 'if (false)',
    expected: ['S1'],
    profiles,
  },
  {
    name: 'a client over HTTP goes on believing after the log was put back',
    file: 'src/wire/http/connection.js',
    find: 'for (const listener of [...this.onRewound])\n            listener(why)',
    put: '',
    expected: ['S1'],
    profiles,
  },
  {
    name: 'a server that is shown what it lost grants on',
    file: 'src/replica/rewind-detector.js',
    find: 'if (owned && seen.signed)',
    put: 'if (false)',
    expected: ['S24'],
    profiles,
  },
]
