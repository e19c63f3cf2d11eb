/** `leasehold agents`: which agents are there, what each of them holds, and what it waits for. */
import type { Command } from 'commander'
import { markOf, readMark } from '../../agent/activity.ts'
import { type ClaimRecord, claimRecord, labelOf } from '../../agent/claim-record.ts'
import { sessionOf } from '../../agent/session.ts'
import { inWords } from '../../duration.ts'
import type { LeaseView } from '../../lessor.ts'
import { addGlobalOptions, type Invocation, invoke } from '../invocation.ts'
import type { TableRow } from '../output.ts'

/** Leases that are read at the same time. */
const AT_ONCE = 64

export function agents(program: Command): void {
  addGlobalOptions(program.command('agents'))
    .summary('list the agents that are there, what each holds, and what it waits for')
    .action(async (_: unknown, self: Command) => {
      await invoke(self, async invocation => {
        const { out, clock, read } = invocation
        const { value, revision } = await read({ kind: 'leases', prefix: 'agents' })
        const sessions = value.filter(view => sessionOf(view) !== undefined).sort((a, b) => (a.holder < b.holder ? -1 : 1))
        const claims = await claimsOf(invocation, sessions)
        if (sessions.length === 0) out.note('no agent is there')
        const now = clock.wall()
        const rows: TableRow[] = []
        for (const view of sessions) {
          const mark = readMark(markOf(view))
          const idle = mark === undefined ? undefined : mark.underWay ? 0 : Math.max(0, now - mark.at)
          const own = claims.get(view.lease)!
          if (out.json) await out.data({ ...jsonOf(view, own), ...(idle !== undefined && { idleMs: idle }), revision })
          const parts = own.length === 0 ? [undefined] : own
          for (const [i, claim] of parts.entries())
            rows.push([
              ...(i === 0 ? [view.holder, processOf(view), idle === undefined ? '' : idle === 0 ? 'active' : inWords(idle)] : ['', '', '']),
              ...(claim === undefined ? ['', ''] : claim.held ? [claim.resources.join(', '), ''] : ['', claim.resources.join(', ')]),
              claim?.purpose ?? '',
            ])
        }
        if (!out.json && rows.length > 0) await out.table(['AGENT', 'PROCESS', 'IDLE', 'HOLDS', 'WAITS FOR', 'PURPOSE'], rows)
      })
    })
}

async function claimsOf({ read }: Invocation, sessions: readonly LeaseView[]): Promise<ReadonlyMap<number, readonly ClaimRecord[]>> {
  const claims = new Map<number, readonly ClaimRecord[]>()
  for (let from = 0; from < sessions.length; from += AT_ONCE)
    await Promise.all(
      sessions.slice(from, from + AT_ONCE).map(async ({ lease, children }) => {
        const views = await Promise.all(children.map(child => read({ kind: 'lease', lease: child })))
        claims.set(
          lease,
          views.flatMap(({ value }) => (value === undefined ? [] : (claimRecord(value) ?? []))),
        )
      }),
    )
  return claims
}

function processOf(view: LeaseView): string {
  const pid = labelOf(view, 'pid')
  return pid === '' ? '' : `${pid} on ${labelOf(view, 'host')}`
}

function jsonOf(view: LeaseView, claims: readonly ClaimRecord[]): object {
  const { process } = sessionOf(view)!
  const shown = (held: boolean) =>
    claims.filter(claim => claim.held === held).map(({ resources, purpose, forTurn, tokens }) => ({ resources, purpose, forTurn, tokens }))
  return { agent: view.holder, session: view.lease, ...(process !== undefined && { process }), holds: shown(true), waits: shown(false) }
}
