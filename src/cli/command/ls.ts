import type { Command } from 'commander'
import { inWords } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import { common, invoke } from '../invocation.ts'
import { mustPrefix } from '../name.ts'
import type { Row } from '../output.ts'
import { unitsOf } from './show.ts'

export function ls(program: Command): void {
  common(program.command('ls'))
    .summary('what is held and waited for')
    .argument('[prefix]', 'only names under it, by whole segments', '')
    .action(async (prefix: string, _: unknown, self: Command) => {
      mustPrefix(prefix)
      await invoke(self, async ({ read, out, clock }) => {
        const { revision, value, more } = await read({ kind: 'resources', prefix }).catch(error => {
          // A server tells no more at once: some are better than none, as long as it is said.
          const limit = error instanceof LeaseError && error.code === 'LIMIT' ? error.facts.limit : undefined
          if (typeof limit !== 'number') throw error
          return read({ kind: 'resources', prefix, limit })
        })
        if (more) out.note(`these are ${value.length} of more: name a narrower prefix`, { more })
        if (out.json) {
          for (const resource of value) await out.data({ ...resource, revision })
          return
        }
        if (value.length === 0) return out.note(`nothing is held or waited for${prefix === '' ? '' : ` under ${prefix}`}`)
        const now = clock.wall()
        const rows = value.flatMap(({ resource, grants, queue }): Row[] => {
          if (grants.length === 0) return [[resource, '(nobody)', '', '', '', '', '', queue.length]]
          return grants.map((grant, i) => [
            ...[i === 0 ? resource : '', grant.holder, grant.token, grant.lease, grant.status === 'live' ? unitsOf(grant) : grant.status],
            ...[inWords(grant.remaining), inWords(Math.max(0, now - grant.since)), i === 0 ? queue.length : ''],
          ])
        })
        await out.table(['RESOURCE', 'HOLDER', 'TOKEN', 'LEASE', 'UNITS', 'LEFT', 'HELD FOR', 'WAITING'], rows)
      })
    })
}
