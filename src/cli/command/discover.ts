import type { Command } from 'commander'
import type { Filter } from '../../recipe/registry/registry.ts'
import { common, invoke } from '../invocation.ts'
import type { Row } from '../output.ts'

interface Options {
  readonly capability?: readonly string[]
  readonly any?: readonly string[]
  readonly tag?: readonly string[]
  readonly zone?: string
  readonly status?: readonly string[]
  readonly pick?: boolean
}

export function discover(program: Command): void {
  const list = (value: string, before: readonly string[] = []) => [...before, value]
  common(program.command('discover'))
    .summary('who is registered')
    .argument('[service]', 'only instances of it')
    .option('--capability <name>', 'who can do this; may be repeated: all of them', list)
    .option('--any <name>', 'who can do this or another that is named; may be repeated', list)
    .option('--tag <name>', 'who has this tag; may be repeated: all of them', list)
    .option('--zone <zone>', 'where we are: nearest come first')
    .option('--status <status>', 'passing, warning, critical, draining, maintenance, unknown, suspect, suppressed; may be repeated', list)
    .option('--pick', 'one of them, as a client would choose: its address alone')
    .action(async (service: string | undefined, options: Options, self: Command) => {
      await invoke(self, async ({ leases, out }) => {
        const found = leases.registry.discover(filterOf(service, options))
        if (options.pick === true) {
          const picked = await found.pick()
          if (picked === undefined) {
            out.note('nobody is there who could be picked')
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
        if (instances.length === 0) return out.note('nobody like that is registered')
        const rows = instances.map(
          (each): Row => [
            ...[each.service, each.instance, each.address, each.reason === '' ? each.status : `${each.status} (${each.reason})`],
            ...[each.capabilities.join(' '), each.tags.join(' '), each.zone, each.load],
          ],
        )
        await out.table(['SERVICE', 'INSTANCE', 'ADDRESS', 'STATUS', 'CAPABILITIES', 'TAGS', 'ZONE', 'LOAD'], rows)
      })
    })
}

function filterOf(service: string | undefined, { capability = [], any = [], tag = [], zone, status = [] }: Options): Filter {
  return {
    ...(service !== undefined && { service }),
    capabilities: { all: capability, any },
    tag,
    ...(zone !== undefined && { zone }),
    status: status as NonNullable<Filter['status']>,
  }
}
