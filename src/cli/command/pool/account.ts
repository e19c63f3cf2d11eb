/** Names accounts in refusals, which name the holders of leases: people know each other by their accounts. */
import type { LeaseError } from '../../../errors.ts'
import { knownSentence } from '../../../wording.ts'
import type { Invocation } from '../../invocation.ts'

/** The account of a lease that waits for members of a pool, of reservations and of holders. None if the key in use may not read the pool. */
export async function accountsIn({ read }: Pick<Invocation, 'read'>, pool: string, waiter: number): Promise<ReadonlyMap<number, string>> {
  const view = await read({ kind: 'pool', pool, lease: waiter }).catch(() => undefined)
  if (view === undefined) return new Map()
  const { queue, reservations, members } = view.value
  return new Map([...queue, ...reservations, ...members.flatMap(({ grants }) => grants)].map(({ lease, account }) => [lease, account]))
}

/** The sentence of a refusal for the sake of a waiter or of reservations, with their accounts. */
export async function withAccounts(invocation: Pick<Invocation, 'read'>, { reason, facts, message }: LeaseError): Promise<string> {
  const { pool, waiter = 0, holder, leases, holders } = facts as Readonly<Record<string, unknown>>
  if (typeof pool !== 'string' || typeof waiter !== 'number') return message
  const accounts = await accountsIn(invocation, pool, waiter)
  const named = {
    ...(typeof holder === 'string' && { holder: accounts.get(waiter) || holder }),
    ...(Array.isArray(leases) &&
      Array.isArray(holders) && { holders: [...new Set(leases.map((lease, i) => accounts.get(lease) || String(holders[i])))] }),
  }
  return knownSentence(reason ?? '', { ...facts, ...named }) ?? message
}
