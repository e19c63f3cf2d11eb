/** A proposal or read that waits for its answer, and the error that is true when no answer comes. */
import { LeaseError, type LeaseErrorOptions } from '../../errors.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import type { View } from '../../lessor.ts'
import type { ClientMessage } from '../messages.ts'
import type { RespConnection } from './connection.ts'

export type RequestMessage = Extract<ClientMessage, { readonly kind: 'propose' | 'read' }>

/** The caller that waits for the answer to a request. One of the two is called, once. */
export interface Waiting {
  settle(answer: Outcome | View): void
  fail(error: unknown): void
}

export class PendingRequest {
  message: RequestMessage
  readonly createdAt: number
  /** The connection that it was sent on; undefined while it waits to be sent. */
  on: RespConnection | undefined
  sentAt = 0
  readonly waiting: Waiting
  /** Removes the listener of its signal, if it has one. */
  unlink: (() => void) | undefined

  constructor(message: RequestMessage, createdAt: number, waiting: Waiting) {
    this.message = message
    this.createdAt = createdAt
    this.waiting = waiting
  }

  get isRead(): boolean {
    return this.message.kind === 'read'
  }

  get isRenewal(): boolean {
    return this.message.kind === 'propose' && this.message.proposal.command.kind === 'renew'
  }

  /** Its sender sends it again if its outcome is unknown: it is a renewal, or has an operation id. */
  get isResentBySender(): boolean {
    return this.isRenewal || (this.message.kind === 'propose' && this.message.proposal.op !== undefined)
  }

  /** The log went back: the revision that a read waits for will never come. */
  forgetRevision(): void {
    if (this.message.kind === 'read') this.message = { ...this.message, atLeast: 0 }
  }

  /** The error that is true when no answer has come. */
  unanswered(why: string, { reason, facts }: Pick<LeaseErrorOptions, 'reason' | 'facts'> = {}): LeaseError {
    const known = { reason, ...(facts && { facts }) }
    if (this.isRead) return new LeaseError('UNAVAILABLE', why, known)
    if (this.on !== undefined) return new LeaseError('UNKNOWN', `${why}: the request may or may not have been executed`, known)
    return new LeaseError('UNAVAILABLE', `${why}: the request was not sent`, known)
  }
}
