/**
 * `leasehold key import`: creates a key for each row of a CSV file.
 *
 * All rows are checked before the first key is created, by creating them in a store in memory: so the same rules decide, and a file with one wrong row changes
 * nothing. The secrets are on disk before the keys exist: none is lost when this process dies.
 */
import { closeSync, constants, fsyncSync, readFileSync, writeFileSync } from 'node:fs'
import type { Command } from 'commander'
import type { Clock } from '../clock.ts'
import { open } from '../connect/connect.ts'
import { LeaseError } from '../errors.ts'
import type { CreateKey } from '../kernel/command.ts'
import { propose } from '../lessor/propose.ts'
import type { Lessor } from '../lessor.ts'
import { openPrivately } from '../private-file.ts'
import { refusedError } from '../refused-error.ts'
import { scopesIn } from '../server/key-scopes.ts'
import { hashSecret, newSecret } from '../server/key-secret.ts'
import { csvLine, parseCsv } from './csv.ts'
import { CommandFailure, EXIT, failureOf, usageError } from './exit.ts'
import { addGlobalOptions, invoke } from './invocation.ts'
import { boundsOf, expiryOf, limitsIn } from './key-fields.ts'
import { collect } from './option-values.ts'

const COLUMNS = ['name', 'allow', 'accounts', 'holders', 'priority', 'members', 'group', 'limits', 'expires'] as const
type KeyColumn = (typeof COLUMNS)[number]

/** Keys that are created at the same time: a store writes them together. */
const AT_ONCE = 64

interface ImportOptions {
  readonly secrets: string
  readonly skipExisting?: boolean
  readonly allow?: readonly string[]
  readonly accounts?: string
  readonly holders?: string
  readonly priority?: string
  readonly members: boolean
  readonly group?: string
  readonly limits?: string
  readonly expires?: string
}

interface ImportedKey {
  readonly line: number
  readonly command: CreateKey
  readonly secret: string
}

const HELP = `
The first line names the columns: name, and any of ${COLUMNS.slice(1).join(', ')}. A cell is written as the option of
leasehold key create, members as yes or no; a value with a comma is quoted. An option of this command is for all rows whose cell is empty or missing;
{name} in it stands for the name of the row.

  name,group,limits
  ann,students,"leases=4,waiters=2"
  ben,staff,`

export function importKeys(group: Command): void {
  addGlobalOptions(group.command('import'))
    .summary('create a key for each row of a CSV file, and write their secrets into a new file; all or none')
    .argument('<csv>', 'the file')
    .requiredOption('--secrets <path>', 'a new file for the names and secrets, readable by its owner only (required)')
    .option('--skip-existing', 'leave out rows whose names keys have already (default: refuse)')
    .option('--allow <scope>', 'for rows without allow; may be repeated', collect)
    .option('--accounts <names>', "for rows without accounts, for example '{name}'")
    .option('--holders <names>', "for rows without holders, for example '{name}*'")
    .option('--priority <range>', 'for rows without priority')
    .option('--no-members', 'for rows without members: no members of a pool by name')
    .option('--group <group>', 'for rows without a group')
    .option('--limits <limits>', 'for rows without limits')
    .option('--expires <time>', 'for rows without expires')
    .addHelpText('after', HELP)
    .action(async (path: string, options: ImportOptions, self: Command) => {
      const text = textOf(path)
      await invoke(self, async invocation => {
        const { out, clock, read, lessor } = invocation
        const { value: existing } = await read({ kind: 'keys' })
        const taken = new Set(existing.map(({ name }) => name))
        const all = keysIn(path, text, options, clock)
        const twice = options.skipExisting === true ? undefined : all.find(({ command }) => taken.has(command.name))
        if (twice !== undefined) throw wrongRow(path, twice.line, `a key ${twice.command.name} exists already`)
        const keys = all.filter(({ command }) => !taken.has(command.name))
        await rehearse(path, keys, existing.length, clock)
        writeSecrets(options.secrets, keys)
        let created = 0
        try {
          await inParts(keys, async key => {
            await create(lessor, key)
            created++
          })
        } catch (error) {
          if (!(error instanceof LeaseError)) throw error
          const means = `${created} of ${keys.length} keys were created. ${options.secrets} has the secrets of all.`
          const next = 'Run it again with --skip-existing and another file for --secrets: it creates the others.'
          throw new CommandFailure({ ...failureOf(error), means, next }, { cause: error })
        }
        if (out.json) await out.data({ created, secrets: options.secrets, skipped: all.length - keys.length })
        const skipped = all.length === keys.length ? '' : ` ${all.length - keys.length} existed already.`
        out.note(
          `created ${created} ${created === 1 ? 'key' : 'keys'}. Their secrets are in ${options.secrets}, and nowhere else.${skipped}`,
        )
      })
    })
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw usageError(`${path} cannot be read: ${(error as Error).message}`, 'Name the CSV file with the keys.')
  }
}

function keysIn(path: string, text: string, options: ImportOptions, clock: Clock): ImportedKey[] {
  const rows = parseCsv(text)
  if ('problem' in rows) throw wrongRow(path, rows.line, rows.problem)
  const [head, ...others] = rows
  const columns = head?.cells ?? []
  const unknown = columns.find(column => !(COLUMNS as readonly string[]).includes(column))
  if (head === undefined || unknown !== undefined || !columns.includes('name') || new Set(columns).size < columns.length)
    throw wrongRow(
      path,
      head?.line ?? 1,
      `the first line must name the columns, each once: name, and any of ${COLUMNS.slice(1).join(', ')}`,
    )
  if (others.length === 0) throw wrongRow(path, head.line, 'no row follows the names of the columns')
  const lines = new Map<string, number>()
  return others.map(({ line, cells }) => {
    if (cells.length !== columns.length) throw wrongRow(path, line, `it has ${cells.length} cells instead of ${columns.length}`)
    try {
      const key = keyOf(new Map(columns.map((column, i) => [column as KeyColumn, cells[i]!])), options, clock)
      const before = lines.get(key.command.name)
      if (before !== undefined) throw wrongRow(path, line, `line ${before} has the name ${key.command.name} too`)
      lines.set(key.command.name, line)
      return { line, ...key }
    } catch (error) {
      if (error instanceof CommandFailure && error.failure.code === 'ROW') throw error
      throw wrongRow(path, line, (error as Error).message)
    }
  })
}

function keyOf(cells: ReadonlyMap<KeyColumn, string>, options: ImportOptions, clock: Clock): Omit<ImportedKey, 'line'> {
  const name = cells.get('name')!
  if (name === '') throw usageError('it has no name', '')
  const given = (column: Exclude<KeyColumn, 'name' | 'members'>): string | undefined => {
    const cell = cells.get(column) ?? ''
    if (cell !== '') return cell
    const option = options[column]
    return (typeof option === 'object' ? option.join(',') : option)?.replaceAll('{name}', name)
  }
  const [allow, accounts, holders, priority, group, limits, expires] = [
    given('allow'),
    given('accounts'),
    given('holders'),
    given('priority'),
    given('group'),
    given('limits'),
    given('expires'),
  ]
  if (allow === undefined) throw usageError('nothing says what the key allows: it needs the column allow, or --allow', '')
  const members = { yes: true, no: false, '': options.members }[cells.get('members') ?? '']
  if (members === undefined) throw usageError(`members is yes or no, not ${cells.get('members')}`, '')
  const secret = newSecret(clock)
  const bounds = {
    members,
    ...(accounts !== undefined && { accounts: [accounts] }),
    ...(holders !== undefined && { holders: [holders] }),
    ...(priority !== undefined && { priority }),
  }
  const command: CreateKey = {
    kind: 'key',
    name,
    hash: hashSecret(secret),
    allow: scopesIn(allow),
    ...boundsOf(bounds),
    ...(group !== undefined && { group }),
    ...(limits !== undefined && { limits: limitsIn([limits]) }),
    ...expiryOf(expires === undefined ? {} : { expires }, clock),
  }
  return { command, secret }
}

/** Creates the keys in memory, beside as many as there are, so that each refusal is known by its line. */
async function rehearse(path: string, keys: readonly ImportedKey[], existing: number, clock: Clock): Promise<void> {
  await using memory = await open('memory:')
  const others = Array.from({ length: existing }, (_, i) => `existing-${i}`)
  const admin = scopesIn('admin')
  await inParts(others, name => create(memory, { command: { kind: 'key', name, hash: hashSecret(newSecret(clock)), allow: admin } }))
  const wrong: { readonly line: number; readonly message: string }[] = []
  await inParts(keys, async key => {
    await create(memory, key).catch(error => {
      if (!(error instanceof LeaseError)) throw error
      wrong.push({ line: key.line, message: error.message })
    })
  })
  const first = wrong.sort((a, b) => a.line - b.line)[0]
  if (first !== undefined) throw wrongRow(path, first.line, first.message)
}

async function create(lessor: Pick<Lessor, 'submit'>, { command }: Pick<ImportedKey, 'command'>): Promise<void> {
  const outcome = await propose(lessor, command)
  if (outcome.kind === 'refused') throw refusedError(outcome)
}

async function inParts<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  for (let at = 0; at < items.length; at += AT_ONCE) await Promise.all(items.slice(at, at + AT_ONCE).map(work))
}

function writeSecrets(path: string, keys: readonly ImportedKey[]): void {
  let file: number
  try {
    file = openPrivately(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    throw usageError(`${path} exists already, and may contain secrets`, 'Name a new file with --secrets.')
  }
  try {
    writeFileSync(
      file,
      [['name', 'secret'], ...keys.map(({ command, secret }) => [command.name, secret])].map(cells => `${csvLine(cells)}\n`).join(''),
    )
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
}

function wrongRow(path: string, line: number, message: string): CommandFailure {
  const next = 'Correct the row, and run the command again.'
  return new CommandFailure({
    exit: EXIT.usage,
    code: 'ROW',
    message: `${path}, line ${line}: ${message}`,
    means: 'No key was created.',
    next,
  })
}
