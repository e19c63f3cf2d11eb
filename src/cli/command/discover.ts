/** `leasehold discover`: lists registered instances, or picks one. */
import type { Command } from 'commander'
import type { Filter } from '../../recipe/registry/registry.ts'
import { addGlobalOptions, invoke } from '../invocation.ts'
import { collect } from '../option-values.ts'
import type { TableRow } from '../output.ts'

interface DiscoverFlags {
  readonly capability?: readonly string[]
  readonly any?: readonly string[]
  readonly tag?: readonly string[]
  readonly zone?: string
  readonly status?: readonly string[]
  readonly pick?: boolean
}

export function discover(program: Command): void {
  addGlobalOptions(program.command('discover'))
    .summary('list the registered instances of services')
    .argument('[service]', 'only instances of this service (default: all services)')
    .option('--capability <name>', 'only instances with this capability; repeated: with all of them', collect)
    .option('--any <name>', 'only instances with this capability; repeated: with at least one of them', collect)
    .option('--tag <name>', 'only instances with this tag; repeated: with all of them', collect)
    .option('--zone <zone>', 'where the caller is: the nearest instances come first')
    .option(
      '--status <status>',
      'only instances with this status: passing, warning, critical, draining, maintenance, unknown, suspect or suppressed; may be repeated',
      collect,
    )
    .option('--pick', 'pick one instance as a client would, and print only its address')
    .action(async (service: string | undefined, options: DiscoverFlags, self: Command) => {
      await invoke(self, async ({ leases, out }) => {
        const found = leases.registry.discover(filterOf(service, options))
        if (options.pick === true) {
          const picked = await found.pick()
          if (picked === undefined) {
            out.note('no instance matches that a client would pick. To see all, run: leasehold discover')
            process.exitCode = 1
            return
          }
          return out.json ? out.data(picked) : out.text(picked.address)
        }
        const instances = await found.list()
        if (out.json) {
          for (const instance of instances) await out.data(instance)
          return
        }
        if (instances.length === 0) return out.note('no matching instance is registered')
        const rows = instances.map(
          ({ service, instance, address, status, reason, capabilities, tags, zone, load }): TableRow => [
            ...[service, instance, address, reason === '' ? status : `${status} (${reason})`],
            ...[capabilities.join(' '), tags.join(' '), zone, load],
          ],
        )
        await out.table(['SERVICE', 'INSTANCE', 'ADDRESS', 'STATUS', 'CAPABILITIES', 'TAGS', 'ZONE', 'LOAD'], rows)
      })
    })
}

function filterOf(service: string | undefined, { capability = [], any = [], tag = [], zone, status = [] }: DiscoverFlags): Filter {
  return {
    ...(service !== undefined && { service }),
    capabilities: { all: capability, any },
    tag,
    ...(zone !== undefined && { zone }),
    status: status as NonNullable<Filter['status']>,
  }
}
