/** `leasehold ls`: the resources that are held or waited for. */
import type { Command } from 'commander'
import { inWords } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import { addGlobalOptions, invoke } from '../invocation.ts'
import { requireValidPrefix } from '../name.ts'
import type { TableRow } from '../output.ts'
import { unitsOf } from '../resource-sentences.ts'

export function ls(program: Command): void {
  addGlobalOptions(program.command('ls'))
    .summary('list the resources that are held or waited for')
    .argument('[prefix]', 'only names under this prefix, by whole segments (default: all)')
    .action(async (prefix = '', _: unknown, self: Command) => {
      requireValidPrefix(prefix)
      await invoke(self, async ({ read, out, clock }) => {
        const { revision, value, more } = await read({ kind: 'resources', prefix }).catch(error => {
          // A server limits the list. A partial list with a note is better than none.
          const limit = error instanceof LeaseError && error.code === 'LIMIT' ? error.facts.limit : undefined
          if (typeof limit !== 'number') throw error
          return read({ kind: 'resources', prefix, limit })
        })
        if (more) out.note(`only the first ${value.length} resources are shown. To see others, use a longer prefix`, { more })
        if (out.json) {
          for (const resource of value) await out.data({ ...resource, revision })
          return
        }
        if (value.length === 0) return out.note(`no resource is held or waited for${prefix === '' ? '' : ` under ${prefix}`}`)
        const now = clock.wall()
        const rows = value.flatMap(({ resource, grants, queue }): TableRow[] => {
          if (grants.length === 0) return [[resource, '(none)', '', '', '', '', '', queue.length]]
          return grants.map((grant, i) => [
            ...[i === 0 ? resource : '', grant.holder, grant.token, grant.lease, grant.status === 'live' ? unitsOf(grant) : grant.status],
            ...[inWords(grant.remaining), inWords(Math.max(0, now - grant.since)), i === 0 ? queue.length : ''],
          ])
        })
        await out.table(['RESOURCE', 'HOLDER', 'TOKEN', 'LEASE', 'UNITS', 'LEFT', 'HELD FOR', 'WAITING'], rows)
      })
    })
}
