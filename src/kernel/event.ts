/** What watchers are told. All events of one revision belong together: nobody ever sees some of them. */

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
] as const
/** The cause of a `generation` that begins because entries were lost; another ends its quiet. */
export const LOST = 'the log lost entries'
/** The cause of a `withdrawn` of one who waited for any of several and was granted others: only its place in this queue is gone. */
export const ELSEWHERE = 'granted elsewhere'
export type EventType = (typeof EVENT_TYPES)[number]

export interface Event {
  readonly revision: number
  readonly type: EventType
  /** 0 where none is concerned. */
  readonly lease: number
  readonly holder?: string | undefined
  readonly resource?: string | undefined
  readonly token?: number | undefined
  readonly key?: string | undefined
  readonly value?: string | undefined
  /** Why it ended or was told: an operator's name, `parent`, `break`, `stolen`, `cap`, `hold`, `lapsed`, `forbidden`, … */
  readonly cause?: string | undefined
  readonly by?: string | undefined
  /** Wall time that the batch carried, for people. */
  readonly at: number
}
