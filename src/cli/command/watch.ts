import type { Command } from 'commander'
import type { Event } from '../../kernel/event.ts'
import { Interrupted } from '../exit.ts'
import { clockTime } from '../format.ts'
import { common, invoke } from '../invocation.ts'
import { mustPrefix } from '../name.ts'
import { clean } from '../output.ts'
import { whole } from './run.ts'

export function watch(program: Command): void {
  common(program.command('watch'))
    .summary('events as they happen, until INT or TERM')
    .argument('[prefix]', 'only names under it, by whole segments', '')
    .option('--after <revision>', 'begin with what came after this revision')
    .action(async (prefix: string, { after }: { after?: string }, self: Command) => {
      mustPrefix(prefix)
      const from = after === undefined ? {} : { after: whole(after, '--after') }
      await invoke(self, async ({ lessor, out, signal }) => {
        for await (const events of lessor.watch(prefix, { ...from, signal })) {
          for (const event of events) await (out.json ? out.data(event) : out.text(inOneLine(event)))
          if (events[0]?.type === 'resync') out.note('events were missed: read anew (leasehold ls), then go on from here')
        }
        if (signal.reason instanceof Interrupted) throw signal.reason
      })
    })
}

function inOneLine({ at, revision, type, resource, key, holder, lease, token, value, cause, by }: Event): string {
  const words = [clockTime(at), revision, type.padEnd(10), resource ?? key ?? '-']
  if (holder !== undefined) words.push(holder)
  if (token !== undefined) words.push(`token ${token}`)
  if (lease !== 0) words.push(`lease ${lease}`)
  if (value !== undefined) words.push(value)
  if (cause !== undefined && cause !== '') words.push(by === undefined ? `(${cause})` : `(${cause} by ${by})`)
  return clean(words.join('  '))
}
