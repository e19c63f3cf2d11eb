/** Routes of pools: their members with what their hosts report, queues and accounts, and keeping members longer. Taking is acquiring: `POST /v1/leases` with `pool`. */
import { parseReport, reportKey, reportPrefix } from '../../devices/report.ts'
import { LeaseError } from '../../errors.ts'
import { EXPLAINED, explanations } from '../../pool/explain.ts'
import { readDurations } from '../../pool/learned-durations.ts'
import type { WaitExplanation } from '../../pool/wait-explanation.ts'
import { Explaining, PoolAnswer, PoolExplained, Pools } from '../../wire/http/pool-schema.ts'
import * as schema from '../../wire/http/schema.ts'
import { expectOutcome, HttpFailure } from './failure.ts'
import { mustBeName } from './parse.ts'
import { json, type Route, type RouteContext, route } from './route.ts'
import { proposeBody, readOptions } from './route-operations.ts'

/** Waiters in one answer, unless the request says how many. */
const DEFAULT_PAGE = 100

/** The reports on the devices of a pool, by member. Empty for a key that may not read them. */
async function reports({ guarded, caller }: RouteContext, pool: string): Promise<ReadonlyMap<string, object>> {
  try {
    const { value } = await guarded.read<'entries'>(caller, { kind: 'entries', prefix: reportPrefix(pool) })
    const start = reportKey(pool, '').length
    return new Map(
      value.flatMap(({ key, value }) => {
        const report = parseReport(value)
        return report === undefined ? [] : [[key.slice(start), report] as const]
      }),
    )
  } catch (error) {
    if (LeaseError.is(error, 'FORBIDDEN')) return new Map()
    throw error
  }
}

export const poolRoutes: readonly Route[] = [
  route({
    method: 'GET',
    path: '/v1/pools',
    summary: 'The pools that have members, waiters or holders.',
    query: schema.Reading,
    response: Pools,
    handle: async context => {
      const { revision, value } = await context.guarded.read<'pools'>(context.caller, { kind: 'pools' }, readOptions(context))
      return json(200, { pools: value, revision }, revision)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/pools/{name}',
    summary: 'A pool: its members with their holders and what their hosts report, a page of its queue, reservations, accounts and rules.',
    query: schema.PoolReading,
    response: PoolAnswer,
    handle: async context => {
      const pool = mustBeName(context.name)
      const { limit = DEFAULT_PAGE, skip = 0 } = context.query
      const query = { kind: 'pool', pool, limit, skip } as const
      const { revision, value } = await context.guarded.read<'pool'>(context.caller, query, readOptions(context))
      const reported = await reports(context, pool)
      const members = value.members.map(member => {
        const report = reported.get(member.member)
        return report === undefined ? member : { ...member, report }
      })
      return json(200, { ...value, members, revision }, revision)
    },
  }),
  route({
    method: 'GET',
    path: '/v1/pools/{name}/explain',
    summary: 'Why the waiters of a pool wait: what is in their way, when each will probably start, and what to ask for instead.',
    query: Explaining,
    response: PoolExplained,
    handle: async context => {
      const pool = mustBeName(context.name)
      const { lease, ...options } = context.query
      const page = lease === undefined ? { limit: options.limit ?? EXPLAINED } : { lease }
      const { revision, value } = await context.guarded.read<'pool'>(context.caller, { kind: 'pool', pool, ...page })
      const duration = await readDurations(
        value,
        async name => (await context.guarded.read<'durations'>(context.caller, { kind: 'durations', class: name })).value,
      )
      const waiters: WaitExplanation[] = []
      for (const explanation of explanations(value, { ...context.query, duration })) {
        if (explanation !== undefined) waiters.push(explanation)
        await context.guarded.nextTurn(context.caller)
      }
      if (lease !== undefined && waiters.length === 0)
        throw new HttpFailure('NOT_FOUND', `lease ${lease} does not wait for the pool ${pool}`, { facts: { lease } })
      return json(200, { pool, waiters, revision }, revision)
    },
  }),
  route({
    method: 'POST',
    path: '/v1/leases/{id}/extend',
    summary: 'Keep members of a pool longer than maxLife says. Refused if a waiter or a reservation needs them.',
    body: schema.Extend,
    response: schema.Done,
    handle: async context => {
      const { revision } = expectOutcome(await proposeBody(context, 'extend', { lease: context.id }), 'done')
      return json(200, { revision }, revision)
    },
  }),
]
