/** The passing of log time changes this in pools: shares, minimal times of holding and expectations. */

import { dropPoolIfIdle } from '../../state/pools.ts'
import type { State } from '../../state.ts'
import { forgetAccounts } from './account.ts'
import { markPool } from './member.ts'
import { isPlanned } from './order.ts'

/** Log time has passed. The caller settles. */
export function passTime(state: State): void {
  if (state.pools.size === 0) return
  // By name: the order of the table differs between replicas.
  for (const name of [...state.pools.keys()].sort()) {
    const pool = state.pools.get(name)!
    forgetAccounts(state, pool)
    // With windows ahead, a turn may have ended before all waiters were tried.
    const mayGoOn = pool.reserved.size > 0 && pool.free.length > 0
    if (pool.queue.length > 0 && (mayGoOn || isPlanned(state, pool))) markPool(state, pool)
    dropPoolIfIdle(state, pool)
  }
}
