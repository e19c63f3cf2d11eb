import type { Command } from 'commander'
import { inWords } from '../../duration.ts'
import { clockTime } from '../format.ts'
import { common, invoke } from '../invocation.ts'
import { mustName } from '../name.ts'

export function history(program: Command): void {
  common(program.command('history'))
    .summary('the last holders of a resource, and how each ended')
    .argument('<name>', 'a resource')
    .action(async (name: string, _: unknown, self: Command) => {
      mustName(name)
      await invoke(self, async ({ read, out }) => {
        const { value } = await read({ kind: 'history', resource: name })
        if (out.json) {
          for (const past of value) await out.data({ resource: name, ...past })
          return
        }
        if (value.length === 0) return out.note(`nobody who held ${name} is remembered`)
        await out.table(
          ['FROM', 'UNTIL', 'HELD FOR', 'HOLDER', 'TOKEN', 'LEASE', 'ENDED'],
          value.map(({ since, until, holder, token, lease, cause, by }) => [
            ...[clockTime(since), clockTime(until), inWords(Math.max(0, until - since)), holder, token, lease],
            by === undefined ? cause : `${cause} by ${by}`,
          ]),
        )
      })
    })
}
