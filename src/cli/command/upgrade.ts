/**
 * `leasehold upgrade`: which processes use the log and in which version, what newer rules will change, and raising them. A process that does not know the new
 * rules stops when they are raised, so they are raised only if every one does, or by force.
 */
import type { Command } from 'commander'
import { type AttachedProcess, usersOf } from '../../connect/store-users.ts'
import { viaOf } from '../../connect/url.ts'
import { RULES } from '../../kernel/state.ts'
import { VERSION } from '../../server/version.ts'
import { EXIT } from '../exit.ts'
import { addGlobalOptions, type Invocation, invoke } from '../invocation.ts'
import { RULE_CHANGES } from '../rule-changes.ts'
import { change } from './operate.ts'

interface UpgradeFlags {
  readonly yes?: boolean
  readonly force?: boolean
}

export function upgrade(program: Command): void {
  addGlobalOptions(program.command('upgrade'))
    .summary('list what uses the log and in which version, and raise its rules')
    .description(
      `Lists the processes that use the store themselves, with their versions, and what newer rules will change. With --yes it raises the rules of the log to the newest that this program knows, unless a process does not know them: such a process would stop. Exits with ${EXIT.failed} if it did not raise them for that reason.`,
    )
    .option('--yes', 'raise the rules')
    .option('--force', 'raise them although processes do not know them, or may not: these stop')
    .action(async (flags: UpgradeFlags, self: Command) => {
      process.exitCode = await invoke(self, invocation => raise(invocation, flags))
    })
}

async function raise(invocation: Invocation, { yes = false, force = false }: UpgradeFlags): Promise<number> {
  const { settings, read, out, clock } = invocation
  const { rules } = (await read({ kind: 'summary' })).value
  const users = await usersOf(viaOf(settings.url).url, clock).catch(() => undefined) // a role may lack the right to list them
  const found = users?.processes ?? []
  const older = found.filter(process => (process.rules ?? 0) < RULES)
  const changes = versionsAfter(rules).map(version => ({ rules: version, change: RULE_CHANGES[version]! }))
  if (out.json) await out.data({ rules, known: RULES, version: VERSION, processes: users && found, changes })
  else {
    await out.text(`The log is decided by rules version ${rules}. This program, ${VERSION}, knows version ${RULES}.`)
    await list(invocation, users && found)
    for (const { rules: version, change: what } of changes) await out.text(`Version ${version} brings: ${what}`)
  }
  if (changes.length === 0) {
    out.note('there is nothing to raise')
    return 0
  }
  if (!yes && !force) {
    out.note('nothing was changed. To raise the rules: leasehold upgrade --yes')
    return 0
  }
  if (older.length > 0 && !force) {
    out.note(`the rules were not raised. These would stop: ${older.map(nameOf).join(', ')}. Upgrade or end them first, or use --force`)
    return EXIT.failed
  }
  for (const version of versionsAfter(rules)) await change(invocation, { kind: 'upgrade', rules: version })
  out.note(`the rules of the log are now version ${RULES}`)
  return 0
}

function versionsAfter(rules: number): readonly number[] {
  return Array.from({ length: Math.max(0, RULES - rules) }, (_, i) => rules + 1 + i)
}

async function list({ out, lessor }: Invocation, processes: readonly AttachedProcess[] | undefined): Promise<void> {
  if (!lessor.profile.shared) return out.note('one server owns this log, and raises its rules when it starts, except with --hold-rules')
  if (processes === undefined)
    return out.note(
      'the processes that use the store are not known here: to list them, run this with --store and the URL of the store itself',
    )
  if (processes.length === 0) return out.note('no process has announced itself; a program does so after some minutes')
  const rows = processes.map(process => [process.kind, nameOf(process), process.version || '?', String(process.rules ?? '?')])
  await out.table(['KIND', 'PROCESS', 'VERSION', 'RULES'], rows)
}

function nameOf({ name }: AttachedProcess): string {
  return name === '' ? 'of an earlier build' : name
}
