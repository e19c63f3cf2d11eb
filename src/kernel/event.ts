/** Events: what watchers see of a change. All events of one revision belong together, and a watcher sees all of them or none. */

export const EVENT_TYPES = [
  'granted',
  'queued',
  'withdrawn',
  'released',
  'lapsed',
  'revoked',
  'transferred',
  'recalled',
  'suspected',
  'recovered',
  'frozen',
  'thawed',
  'put',
  'deleted',
  'policy',
  'key',
  'generation',
  'moved',
  'resync',
  'suppressed',
  'reused',
  'preserving',
  'relaxed',
  'kept',
] as const
/** The cause of a `generation` event after records were lost. Another `generation` event ends the quiet period. */
export const LOST = 'records-lost'
/** The cause of a `withdrawn` event of a waiter for any of several resources that was granted others: only its place in this queue is gone. */
export const ELSEWHERE = 'granted-elsewhere'
/** The cause of a `withdrawn` event of a waiter whose own process got by a transfer what it waits for. `by` is the id of that lease. */
export const DEADLOCK = 'deadlock'
export type EventType = (typeof EVENT_TYPES)[number]

export interface Event {
  readonly revision: number
  readonly type: EventType
  /** 0 when the event concerns no lease. */
  readonly lease: number
  readonly holder?: string | undefined
  readonly resource?: string | undefined
  readonly token?: number | undefined
  readonly key?: string | undefined
  readonly value?: string | undefined
  /** Why: an operator's name, `parent`, `break`, `stolen`, `cap`, `hold`, `lapsed`, `forbidden`, … */
  readonly cause?: string | undefined
  readonly by?: string | undefined
  /** Wall time of the batch, for display only. */
  readonly at: number
}
