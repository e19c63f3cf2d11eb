/** One question of ours on its way: what to do with it when a connection is lost, and what its asker is told when nobody knows. */
import { LeaseError } from '../../errors.ts'
import type { Operation } from '../../kernel/command.ts'
import type { ClientMessage, ServerMessage } from '../messages.ts'
import type { RespConnection } from './connection.ts'

export type RequestOptions = Extract<ClientMessage, { readonly kind: 'propose' | 'read' }>

export class PendingRequest {
  question: RequestOptions
  readonly since: number
  /** Where it was sent last, and when. */
  on: RespConnection | undefined
  sentAt = 0
  /** It was sent at least once and the answer to that never came: it may have been done. */
  lost = false
  /** How often it was asked again. */
  tries = 0
  readonly settle: (answer: ServerMessage) => void
  readonly fail: (error: unknown) => void

  constructor(question: RequestOptions, since: number, settle: (answer: ServerMessage) => void, fail: (error: unknown) => void) {
    this.question = question
    this.since = since
    this.settle = settle
    this.fail = fail
  }

  get isRenewal(): boolean {
    return this.question.kind === 'propose' && this.question.proposal.command.kind === 'renew'
  }

  get #op(): Operation | undefined {
    return this.question.kind === 'propose' ? this.question.proposal.op : undefined
  }

  /** Asking twice does what asking once does: a question, a renewal, or what has the name of its operation. */
  get repeatable(): boolean {
    return this.question.kind === 'read' || this.isRenewal || this.#op !== undefined
  }

  /** The revision that was waited for will not come. */
  forgetRevision(): void {
    if (this.question.kind === 'read') this.question = { ...this.question, atLeast: 0 }
  }

  /** Its answer will not come on this connection. */
  interrupted(): void {
    this.on = undefined
    this.lost = true
    this.tries++
    if (this.question.kind !== 'propose' || this.#op === undefined || this.#op.again === true) return
    const { proposal } = this.question
    this.question = { ...this.question, proposal: { ...proposal, op: { ...this.#op, again: true } } }
  }

  /** What is true when no answer has come. */
  unanswered(why: string): LeaseError {
    if (this.question.kind === 'read') return new LeaseError('UNAVAILABLE', why)
    if (this.lost || this.on !== undefined) return new LeaseError('UNKNOWN', `${why}: what was asked may or may not have been done`)
    return new LeaseError('UNAVAILABLE', `${why}: what was asked was not sent`)
  }

  /** Whether a failure that the server told of is the last word on it. */
  isFinal({ code }: LeaseError): boolean {
    if (code === 'UNKNOWN') return !this.repeatable
    // This copy was not done; the one before may have been. What may be otherwise in a moment is asked again.
    return (code !== 'UNAVAILABLE' && code !== 'LIMIT') || !this.lost || this.question.kind === 'read'
  }

  /** What a failure that the server told of says about all copies. */
  finally(error: LeaseError): LeaseError {
    const { code, message } = error
    if (!this.lost || this.question.kind === 'read' || !['UNAVAILABLE', 'LIMIT', 'FORBIDDEN', 'UNAUTHENTICATED'].includes(code))
      return error
    return new LeaseError('UNKNOWN', `${message}: an earlier copy of what was asked may or may not have been done`, { cause: error })
  }
}
