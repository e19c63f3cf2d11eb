/** `leasehold watch`: prints events as they happen. */
import type { Command } from 'commander'
import type { Event } from '../../kernel/event.ts'
import { Interrupted } from '../exit.ts'
import { localTime } from '../format.ts'
import { addGlobalOptions, invoke } from '../invocation.ts'
import { requireValidPrefix } from '../name.ts'
import { parseInteger } from '../option-values.ts'
import { clean } from '../output.ts'

export function watch(program: Command): void {
  addGlobalOptions(program.command('watch'))
    .summary('print events as they happen, until INT or TERM')
    .argument('[prefix]', 'only names under this prefix, by whole segments (default: all)')
    .option('--after <revision>', 'start with the events after this revision (default: the present one)')
    .action(async (prefix: string | undefined = '', { after }: { after?: string }, self: Command) => {
      requireValidPrefix(prefix)
      const from = after === undefined ? {} : { after: parseInteger(after, '--after') }
      await invoke(self, async ({ lessor, out, signal }) => {
        for await (const events of lessor.watch(prefix, { ...from, signal })) {
          for (const event of events) await (out.json ? out.data(event) : out.text(eventLine(event)))
          if (events[0]?.type === 'resync')
            out.note('events were missed. Read the present state with leasehold ls; the events that follow continue from there')
        }
        if (signal.reason instanceof Interrupted) throw signal.reason
      })
    })
}

function eventLine({ at, revision, type, resource, key, holder, lease, token, value, cause, by }: Event): string {
  const words = [localTime(at), revision, type.padEnd(10), resource ?? key ?? '-']
  if (holder !== undefined) words.push(holder)
  if (token !== undefined) words.push(`token ${token}`)
  if (lease !== 0) words.push(`lease ${lease}`)
  if (value !== undefined) words.push(value)
  if (cause !== undefined && cause !== '') words.push(by === undefined ? `(${cause})` : `(${cause} by ${by})`)
  return clean(words.join('  '))
}
