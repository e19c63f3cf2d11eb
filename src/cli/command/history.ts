/** `leasehold history`: the past holders of a resource. */
import type { Command } from 'commander'
import { inWords } from '../../duration.ts'
import { localTime } from '../format.ts'
import { addGlobalOptions, invoke } from '../invocation.ts'
import { requireValidName } from '../name.ts'

export function history(program: Command): void {
  addGlobalOptions(program.command('history'))
    .summary('list the last holders of a resource and how each lease ended')
    .argument('<name>', 'the resource')
    .action(async (name: string, _: unknown, self: Command) => {
      requireValidName(name)
      await invoke(self, async ({ read, out }) => {
        const { value } = await read({ kind: 'history', resource: name })
        if (out.json) {
          for (const past of value) await out.data({ resource: name, ...past })
          return
        }
        if (value.length === 0) return out.note(`no past holders of ${name} are recorded`)
        await out.table(
          ['FROM', 'UNTIL', 'HELD FOR', 'HOLDER', 'TOKEN', 'LEASE', 'ENDED'],
          value.map(({ since, until, holder, token, lease, cause, by }) => [
            ...[localTime(since), localTime(until), inWords(Math.max(0, until - since)), holder, token, lease],
            by === undefined ? cause : `${cause} by ${by}`,
          ]),
        )
      })
    })
}
