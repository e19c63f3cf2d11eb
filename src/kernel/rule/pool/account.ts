/** The accounts of a pool: who has used how much. */
import type { PoolAccount, PoolState, State } from '../../state.ts'

/** The name at which policies for an account are set. */
export function accountName(pool: PoolState, account: string): string {
  return `${pool.name}/accounts/${account}`
}

/** The usage of an account at the present log time. */
export function usageOf(_state: State, _pool: PoolState, account: PoolAccount): number {
  return account.usage
}
