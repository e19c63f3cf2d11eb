/** Where each planted mistake was found last. Written by `npm run sim -- --planted --record FILE`. */
import type { ProfileName } from './run.ts'

export interface Place {
  readonly profile: ProfileName
  readonly seed: number
}

export const PLACES: Readonly<Record<string, Place>> = {
  "a parent's end frees at once what its children hold": { profile: 'embedded', seed: 4 },
  'a mark of another epoch counts': { profile: 'restless', seed: 3 },
  'a renewal does not end what had aged': { profile: 'restless', seed: 3 },
  'after entries were lost, grants go on at once': { profile: 'owned', seed: 8 },
  'a snapshot is torn by what happens while it is taken': { profile: 'embedded', seed: 2 },
  'an operator passes on what the giver still believes in': { profile: 'restless', seed: 1 },
  'priority counts the wrong way while waiters age': { profile: 'servers', seed: 3 },
  'a waiting cycle is closed': { profile: 'calm', seed: 7 },
  'a process that was replaced registers over its successor (Curator 604)': { profile: 'moving', seed: 3 },
  'an entry that was taken over goes with the lease it hung on before': { profile: 'embedded', seed: 2 },
  'a register accepts an older token after a newer one': { profile: 'moving', seed: 4 },
  'after entries were lost, terms go on as if no renewal had been among them': { profile: 'servers', seed: 1 },
  'every restart begins to count anew (etcd 9395)': { profile: 'restless', seed: 2 },
  'an owner does not mark what it found': { profile: 'owned', seed: 2 },
  'an owner renews in memory what it is about to end': { profile: 'moving', seed: 14 },
  'the first renewal after a restart is only in memory': { profile: 'owned', seed: 8 },
  'a stalled server wakes and lapses everything (etcd 15247)': { profile: 'owned', seed: 19 },
  'what was sent before is reported as certainly not done, since the disk is full now': { profile: 'embedded', seed: 11 },
  'validity is counted from the answer (etcd, client-go, KCL)': { profile: 'embedded', seed: 5 },
  'a holder that slept through its time asks only the clock that slept too': { profile: 'servers', seed: 4 },
  'what was lost by its own clock is believed again when an answer comes': { profile: 'servers', seed: 4 },
  'the library counts validity from the answer (etcd, client-go, KCL)': { profile: 'library', seed: 5 },
  'the library gives up its margin on the wrong side': { profile: 'library', seed: 1 },
  'the library asks only the clock that slept too': { profile: 'library', seed: 2 },
  'a lease that was waited for is believed from the news of its grant (redlock 296)': { profile: 'library', seed: 1 },
  'the library is told of no loss until an answer comes (npm etcd3)': { profile: 'library', seed: 1 },
  'the library believes again in what it has lost when a late answer comes': { profile: 'library', seed: 1 },
  'the library releases first and stops believing later': { profile: 'library', seed: 1 },
  'the library goes on believing in what it has passed on': { profile: 'library', seed: 1 },
  'a leader gives up the seat while its work goes on (kubernetes 139991)': { profile: 'library', seed: 2 },
  'a leader goes on without asking the clock (client-go)': { profile: 'library', seed: 1 },
  'a write does not wait for those who read': { profile: 'library', seed: 1 },
  'a value is kept without a lease': { profile: 'library', seed: 1 },
  'a stall is credited to timers that were restarted after it': { profile: 'owned', seed: 14 },
  'a client over RESP goes on believing after the log was put back': { profile: 'rollback', seed: 6 },
  'one who wants more than there is keeps others waiting': { profile: 'restless', seed: 4 },
  'a replica applies the object that its caller has changed since': { profile: 'embedded', seed: 1 },
}
