/** Steps of the scenes in cases.ts and pool-cases.ts: a request whose answer the scene looks at, and one that must not be refused. */
import type { Acquire } from '../src/kernel/command.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import type { Crew } from './directed-crew.ts'
import type { Host } from './participants.ts'

export type Scene = (crew: Crew) => Promise<unknown>

/** Longer than all other terms of this world. */
export const LONG = 8_000

export async function acquire(by: Crew | Host, request: Partial<Acquire>): Promise<Outcome> {
  return by.propose({ kind: 'acquire', holder: 'other', ttl: 1_000, wants: [], ...request })
}

export async function leaseOf(crew: Crew, request: Partial<Acquire>): Promise<number> {
  const outcome = await acquire(crew, request)
  if (outcome.kind !== 'granted' && outcome.kind !== 'queued') throw new Error(`a scene was refused: ${JSON.stringify(outcome)}`)
  return outcome.lease
}
