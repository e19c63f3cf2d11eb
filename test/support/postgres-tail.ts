import type pg from 'pg'

/** As if it had failed over to a standby that was behind: everything fits together, only less of it. */
export async function loseTail(pool: pg.Pool, name: string, count: number): Promise<void> {
  await pool.query(
    `with lost as (
       update leasehold.log l set head = greatest(l.floor, l.head - $2),
         head_nonce = coalesce((select e.nonce from leasehold.entry e where e.log = l.id and e.idx = l.head - $2), l.floor_nonce)
       where name = $1 returning id, head)
     delete from leasehold.entry e using lost where e.log = lost.id and e.idx > lost.head`,
    [name, count],
  )
}
