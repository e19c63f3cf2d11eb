/** Reads what a key may do and have, as options of `leasehold key` and cells of a list write it. */
import type { Clock } from '../clock.ts'
import type { KeyBounds, KeyLimits, PriorityRange } from '../kernel/command.ts'
import { keyLimitFields } from '../kernel/command-table.ts'
import { expiryIn } from '../server/key-answer.ts'
import { usageError } from './exit.ts'
import { parseInteger } from './option-values.ts'

export interface BoundFlags {
  readonly accounts?: readonly string[]
  readonly holders?: readonly string[]
  readonly priority?: string
  readonly members: boolean
}

export function boundsOf({ accounts, holders, priority, members }: BoundFlags): KeyBounds {
  return {
    ...(accounts !== undefined && { accounts: namesIn(accounts) }),
    ...(holders !== undefined && { holders: namesIn(holders) }),
    ...(priority !== undefined && { priority: priorityIn(priority) }),
    ...(!members && { noMembers: true }),
  }
}

function namesIn(texts: readonly string[]): readonly string[] {
  return texts.flatMap(text => text.split(',').map(name => name.trim()))
}

function priorityIn(text: string): PriorityRange {
  const [, low, high] = /^(-?\d{1,9})\.\.(-?\d{1,9})$/.exec(text) ?? []
  if (low === undefined) throw usageError(`--priority takes a range, not ${text}`, 'Write, for example: --priority 0..10')
  return { low: Number(low), high: Number(high) }
}

export function limitsIn(texts: readonly string[]): KeyLimits {
  const limits = new Map<string, number>()
  for (const part of texts.flatMap(text => text.split(','))) {
    const [name = '', value = ''] = part.split('=').map(word => word.trim())
    if (!Object.hasOwn(keyLimitFields, name))
      throw usageError(
        `there is no limit ${name}`,
        `The limits are ${Object.keys(keyLimitFields).join(', ')}: --limits leases=100,waiters=10`,
      )
    limits.set(name, parseInteger(value, `--limits ${name}`, 0))
  }
  return Object.fromEntries(limits)
}

export function expiryOf({ expires }: { readonly expires?: string }, clock: Clock): { readonly expires?: number } {
  return expires === undefined ? {} : { expires: expiryIn(expires, clock.wall(), '--expires') }
}
