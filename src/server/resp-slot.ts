/** Where answers stand until those before them have been written. */
import type { Outcome, Refused } from '../kernel/outcome.ts'
import type { RespWriter } from '../wire/resp-writer.ts'
import { asLeaseError } from './resp-conversation.ts'
import { writeError } from './resp-write.ts'
import { Tally } from './tally.ts'

export type Encode<T = never> = (to: RespWriter, value: T) => void

/** The place of an answer among those before and after it. Used again and again: most connections ask the same all day. */
export class Slot {
  ready = false
  value: unknown = undefined
  error: unknown = undefined
  failed = false
  encode: Encode<unknown> = none
  tally: Tally = NOBODY
  readonly settle: (value: unknown) => void
  readonly fail: (error: unknown) => void

  constructor(session: { dirty(): void }) {
    this.settle = value => {
      this.value = value
      this.ready = true
      session.dirty()
    }
    this.fail = error => {
      this.error = error
      this.failed = true
      this.ready = true
      session.dirty()
    }
  }

  write(to: RespWriter): void {
    if (this.failed) {
      this.tally.count(asLeaseError(this.error).code)
      writeError(to, this.error)
    } else {
      this.tally.count(isRefused(this.value) ? this.value.code : undefined)
      this.encode(to, this.value)
    }
    this.value = undefined
    this.error = undefined
    this.failed = false
    this.ready = false
  }
}

export const none: Encode<unknown> = () => {}
export const NOBODY = new Tally('resp', '')

function isRefused(value: unknown): value is Refused {
  return typeof value === 'object' && value !== null && (value as Partial<Outcome>).kind === 'refused'
}
