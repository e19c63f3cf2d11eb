/** A snapshot keeps here what a lease asked a pool for. */
import { poolConditions } from '../command-table.ts'
import type { PoolClaim } from '../state.ts'
import type { Reader, Writer } from './bytes.ts'

export function writeClaim(to: Writer, claim: PoolClaim): void {
  to.text(claim.pool)
  for (const n of [claim.count, claim.units, claim.total]) to.uint(n)
  poolConditions.write(to, claim.match)
  to.text(claim.near)
  to.text(claim.account)
  for (const n of [claim.expect, claim.from, claim.start]) to.uint(n)
  for (const flag of [claim.preemptible, claim.yields, claim.borrows, claim.passedOn]) to.bool(flag)
  to.uint(claim.notice)
}

export function readClaim(from: Reader): PoolClaim {
  return {
    pool: from.text(),
    count: from.uint(),
    units: from.uint(),
    total: from.uint(),
    match: poolConditions.read(from).map(({ label, test, values = [] }) => ({ label, test, values })),
    near: from.text(),
    account: from.text(),
    expect: from.uint(),
    from: from.uint(),
    start: from.uint(),
    preemptible: from.bool(),
    yields: from.bool(),
    borrows: from.bool(),
    passedOn: from.bool(),
    notice: from.uint(),
    shape: undefined,
  }
}
