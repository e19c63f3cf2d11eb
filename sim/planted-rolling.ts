/** Mistakes of replicas of different rules versions on one log (see planted.ts). */
import type { Planted } from './planted-mistake.ts'

export const ROLLING_BUGS: readonly Planted[] = [
  {
    name: 'a replica continues under rules that it does not know',
    file: 'src/replica/log.js',
    find: 'if (this.state.rules > RULES)',
    put: 'if (false)',
    expected: ['S22'],
    profiles: ['rolling'],
  },
  {
    name: 'a replica loads a snapshot with rules that it does not know',
    file: 'src/kernel/codec/snapshot.js',
    find: 'if (state.rules > RULES)',
    put: 'if (false)',
    expected: ['S22'],
    profiles: ['rolling'],
  },
  {
    name: 'a log begins with the rules of the replica that reads it',
    file: 'src/kernel/codec/batch.js',
    find: 'beginLog(state, batch.wall, batch.rules)',
    put: 'beginLog(state, batch.wall, RULES)',
    // A replica with another state soon acknowledges changes that are not in the log.
    expected: ['S22', 'S9'],
    profiles: ['rolling'],
  },
]
