/** A proposal or read that waits for its answer: whether it may be sent again on another connection, and which error is true when no answer comes. */
import { LeaseError, type LeaseErrorOptions } from '../../errors.ts'
import type { Operation } from '../../kernel/command.ts'
import type { ClientMessage, ServerMessage } from '../messages.ts'
import type { RespConnection } from './connection.ts'

export type RequestMessage = Extract<ClientMessage, { readonly kind: 'propose' | 'read' }>

export class PendingRequest {
  message: RequestMessage
  readonly createdAt: number
  /** The connection that it was last sent on; undefined while it waits to be sent. */
  on: RespConnection | undefined
  sentAt = 0
  /** A copy was sent and its answer never came: the server may have executed it. */
  lost = false
  /** How many copies were lost. */
  tries = 0
  readonly settle: (answer: ServerMessage) => void
  readonly fail: (error: unknown) => void

  constructor(message: RequestMessage, createdAt: number, settle: (answer: ServerMessage) => void, fail: (error: unknown) => void) {
    this.message = message
    this.createdAt = createdAt
    this.settle = settle
    this.fail = fail
  }

  get isRenewal(): boolean {
    return this.message.kind === 'propose' && this.message.proposal.command.kind === 'renew'
  }

  get #op(): Operation | undefined {
    return this.message.kind === 'propose' ? this.message.proposal.op : undefined
  }

  /** Sending it twice has the effect of sending it once: it is a read, a renewal, or carries an operation id. */
  get repeatable(): boolean {
    return this.message.kind === 'read' || this.isRenewal || this.#op !== undefined
  }

  /** The log went back: the revision that a read waits for will never come. */
  forgetRevision(): void {
    if (this.message.kind === 'read') this.message = { ...this.message, atLeast: 0 }
  }

  /** The answer will not come on this connection. */
  interrupted(): void {
    this.on = undefined
    this.lost = true
    this.tries++
    if (this.message.kind !== 'propose' || this.#op === undefined || this.#op.again === true) return
    const { proposal } = this.message
    this.message = { ...this.message, proposal: { ...proposal, op: { ...this.#op, again: true } } }
  }

  /** The error that is true when no answer has come. */
  unanswered(why: string, { reason, facts }: Pick<LeaseErrorOptions, 'reason' | 'facts'> = {}): LeaseError {
    const known = { reason, ...(facts && { facts }) }
    if (this.message.kind === 'read') return new LeaseError('UNAVAILABLE', why, known)
    if (this.lost || this.on !== undefined) return new LeaseError('UNKNOWN', `${why}: the request may or may not have been executed`, known)
    return new LeaseError('UNAVAILABLE', `${why}: the request was not sent`, known)
  }

  /** Whether an error from the server settles the request. If not, it is sent again. */
  isFinal({ code }: LeaseError): boolean {
    if (code === 'UNKNOWN') return !this.repeatable
    // The server did not execute this copy, but may have executed a lost one. Only another try can tell.
    return (code !== 'UNAVAILABLE' && code !== 'LIMIT') || !this.lost || this.message.kind === 'read'
  }

  /** The error that is true for all copies, when the server refused the last one with `error`. */
  finally(error: LeaseError): LeaseError {
    const { code, message, reason, facts } = error
    if (!this.lost || this.message.kind === 'read' || !['UNAVAILABLE', 'LIMIT', 'FORBIDDEN', 'UNAUTHENTICATED'].includes(code)) return error
    return new LeaseError('UNKNOWN', `${message}: an earlier copy of the request may or may not have been executed`, {
      cause: error,
      reason,
      facts,
    })
  }
}
