/**
 * Why a holder lost a lease: no renewal was answered, its process or its machine stood still, its work did not go on, its program did not renew or touch it,
 * or it was held for its limit. The place of a word is its number in the log: append only.
 */
export type LossCause = 'unreachable' | 'stall' | 'suspend' | 'no-progress' | 'not-renewed' | 'inactive' | 'max-hold'

export const LOSS_CAUSES = [
  ...(['unreachable', 'stall', 'suspend', 'no-progress', 'not-renewed', 'inactive', 'max-hold'] as const),
] as const satisfies readonly LossCause[]

export function isLossCause(cause: string): cause is LossCause {
  return (LOSS_CAUSES as readonly string[]).includes(cause)
}
