/** Mistakes that only a log which went back shows (see planted.ts). */
import type { Planted } from './planted-mistake.ts'

const profiles = ['rollback'] as const

export const ROLLBACK_BUGS: readonly Planted[] = [
  {
    name: 'after records were lost, a waiter confirms a grant that may have lapsed since',
    file: 'src/kernel/rule/renew.js',
    find: 'state.quiet !== undefined && ahead === 0 && isUntaken(lease)',
    put: 'false',
    expected: ['S1'],
    profiles: ['servers'],
  },
  {
    name: 'a log that was rolled back reuses ids and tokens',
    file: 'src/kernel/state.js',
    find: 'const base = Math.min(state.wall * 100, ORIGIN_LIMIT)',
    put: 'const base = 0',
    expected: ['S3', 'S6'],
    profiles,
  },
  {
    name: 'a RESP client keeps using its leases after the log was rolled back',
    file: 'src/wire/resp/client.js',
    find: 'if (!greeting.continues)',
    put: 'if (false)',
    expected: ['S1'],
    profiles,
  },
  {
    name: 'an HTTP client keeps using its leases after the log was rolled back',
    file: 'src/wire/http/connection.js',
    find: 'for (const listener of [...this.onRewound])\n            listener(why)',
    put: '',
    expected: ['S1'],
    profiles,
  },
  {
    name: 'a server that is shown lost records continues to grant',
    file: 'src/replica/rewind-detector.js',
    find: 'if (log.owned && seen.signed)',
    put: 'if (false)',
    expected: ['S24'],
    profiles,
  },
]
