/** `leasehold history`: the past holders of a resource, and how the commands ended that ran under it. */
import type { Command } from 'commander'
import { inWords, parseDuration } from '../../duration.ts'
import { RUN_RULES, RUNS } from '../../lessor/kept-runs.ts'
import type { PastGrant } from '../../lessor.ts'
import { localTime } from '../format.ts'
import { addGlobalOptions, type Invocation, invoke } from '../invocation.ts'
import { requireValidName } from '../name.ts'
import { parseInteger } from '../option-values.ts'

interface HistoryFlags {
  readonly since?: string
  readonly limit?: string
}

export function history(program: Command): void {
  addGlobalOptions(program.command('history'))
    .summary('list the last holders of a resource, how each lease ended, and the exit code of what ran')
    .argument('<name>', 'the resource')
    .option('--since <duration>', 'only what ended in this time, for example 7d (default: all that is kept)')
    .option('--limit <n>', 'only the newest (default: all that are kept)')
    .action(async (name: string, { since, limit }: HistoryFlags, self: Command) => {
      requireValidName(name)
      const age = since === undefined ? Number.POSITIVE_INFINITY : parseDuration(since, '--since')
      const most = limit === undefined ? Number.POSITIVE_INFINITY : parseInteger(limit, '--limit', 1)
      await invoke(self, async invocation => {
        const { read, out, clock } = invocation
        const { value } = await read({ kind: 'history', resource: name, ...(limit !== undefined && { limit: most }) })
        const newest = value.filter(({ until }) => until >= clock.wall() - age)
        if (out.json) {
          for (const past of newest) await out.data({ resource: name, ...past })
          return
        }
        if (newest.length === 0)
          return out.note(`no past holders of ${name} are recorded${since === undefined ? '' : ` in the last ${since}`}`)
        await out.table(
          ['FROM', 'UNTIL', 'HELD FOR', 'HOLDER', 'TOKEN', 'LEASE', 'ENDED', 'EXIT', 'RAN', 'COMMAND'],
          newest.map(past => [
            ...[localTime(past.since), localTime(past.until), inWords(Math.max(0, past.until - past.since)), past.holder, past.token],
            ...[past.lease, past.by === undefined ? past.cause : `${past.cause} by ${past.by}`],
            ...[past.exit ?? '', past.ran === undefined ? '' : inWords(past.ran), past.command ?? ''],
          ]),
        )
        await adviseToKeepRuns(invocation, newest)
      })
    })
}

/** Without runs there are no exit codes, and the log itself forgets all but the last holders. Says how to keep more, unless an operator has decided. */
async function adviseToKeepRuns({ read, out }: Invocation, shown: readonly PastGrant[]): Promise<void> {
  if (shown.some(({ exit }) => exit !== undefined)) return
  const { value: policies } = await read({ kind: 'policies' })
  if (policies.some(({ prefix, rules }) => prefix === RUNS && rules.freeEntries !== undefined)) return
  const { freeEntries, maxLife = 0 } = RUN_RULES
  out.note(
    `the last 8 holders are kept. To keep exit codes and more runs of leasehold run: leasehold policy set ${RUNS} freeEntries=${freeEntries} maxLife=${maxLife / 86_400_000}d`,
  )
}
