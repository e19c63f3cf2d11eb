/**
 * Delivers one notice to a webhook or to a command.
 *
 * A webhook is signed as Standard Webhooks says (standardwebhooks.com): `webhook-signature` is `v1,` and the base64 of an HMAC-SHA-256 over
 * `ID.TIMESTAMP.BODY`. The timestamp is that of the attempt, so a receiver can refuse what is old.
 */
import { createHmac } from 'node:crypto'
import { type Clock, chainAbort, inUtc } from '../../../clock.ts'
import type { BoundedProgram } from '../../../devices/bounded-program.ts'
import { inWords } from '../../../duration.ts'
import type { PoolNotice } from '../../../pool/notices.ts'
import { usageError } from '../../exit.ts'

/** Ms that one attempt may take. */
export const ATTEMPT_TIMEOUT = 10_000

/** The result of an attempt: undefined, or why the notice was not delivered. */
export interface FailedAttempt {
  readonly why: string
  /** The receiver refuses the notice itself: another attempt would be refused too. */
  readonly final: boolean
}

/** Never throws, except the reason of `signal`. */
export type Deliver = (notice: PoolNotice, signal: AbortSignal) => Promise<FailedAttempt | undefined>

/** Reads a secret as Standard Webhooks writes it: `whsec_` and 24 to 64 bytes in base64. */
export function secretIn(text: string): Buffer {
  const [, encoded] = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(text.trim()) ?? []
  const secret = Buffer.from(encoded ?? '', 'base64')
  if (secret.length >= 24 && secret.length <= 64) return secret
  throw usageError(
    'the secret of the webhook is not whsec_ and 24 to 64 bytes in base64',
    'Make one: echo "whsec_$(openssl rand -base64 32)" > webhook.secret',
  )
}

export function signature(secret: Buffer, id: string, timestamp: string, body: string): string {
  return `v1,${createHmac('sha256', secret).update(`${id}.${timestamp}.${body}`).digest('base64')}`
}

export function webhook({ url, secret, clock }: { readonly url: URL; readonly secret: Buffer; readonly clock: Clock }): Deliver {
  return async (notice, signal) => {
    const body = JSON.stringify({ ...notice, at: inUtc(clock.wall()) })
    const timestamp = String(Math.floor(clock.wall() / 1_000))
    const over = new AbortController()
    const unchain = chainAbort(signal, over)
    const late = new Error(`did not answer within ${inWords(ATTEMPT_TIMEOUT)}`)
    const cancel = clock.after(ATTEMPT_TIMEOUT, () => over.abort(late), { ref: true })
    try {
      const { status, body: answer } = await fetch(url, {
        method: 'POST',
        body,
        // A redirect would send the notice where the operator did not say.
        redirect: 'manual',
        signal: over.signal,
        headers: {
          'content-type': 'application/json',
          'user-agent': 'leasehold',
          'webhook-id': notice.id,
          'webhook-timestamp': timestamp,
          'webhook-signature': signature(secret, notice.id, timestamp, body),
        },
      })
      await answer?.cancel().catch(() => {}) // it may be endless
      if (status >= 200 && status < 300) return undefined
      return { why: `answered ${status}`, final: status >= 300 && status < 500 && status !== 408 && status !== 429 }
    } catch (error) {
      signal.throwIfAborted()
      if (error === late) return { why: late.message, final: false }
      const { cause, message } = error as Error
      return { why: `cannot be reached: ${cause instanceof Error ? cause.message : message}`, final: false }
    } finally {
      cancel()
      unchain()
    }
  }
}

/** Runs by `/bin/sh -c`, by turns, so that one that cannot be killed does not keep all others from being started. What the notice says is in the environment, where a shell does not interpret it. */
export function noticeCommand(programs: readonly BoundedProgram[], command: string): Deliver {
  let turn = 0
  return async (notice, signal) => {
    const { kind, text, account, holder, pool, lease } = notice
    const env = {
      LEASEHOLD_NOTICE: JSON.stringify(notice),
      LEASEHOLD_NOTICE_KIND: kind,
      LEASEHOLD_NOTICE_TEXT: text,
      LEASEHOLD_ACCOUNT: account,
      LEASEHOLD_HOLDER_NAME: holder,
      LEASEHOLD_POOL: pool,
      LEASEHOLD_LEASE_ID: String(lease),
    }
    try {
      await programs[turn++ % programs.length]!.run(['/bin/sh', '-c', command], signal, env)
      return undefined
    } catch (error) {
      signal.throwIfAborted()
      return { why: (error as Error).message, final: false }
    }
  }
}

/** The receiver of a webhook, for messages: its path and query may be a secret. */
export function originOf({ protocol, host }: URL): string {
  return `${protocol}//${host}`
}
