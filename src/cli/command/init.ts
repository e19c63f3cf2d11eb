/** `leasehold init`: writes the hooks that make claims binding. It shows what it would write, and changes nothing without a yes. */
import { chmodSync, existsSync, lstatSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { delimiter, dirname, join, resolve } from 'node:path'
import { createInterface } from 'node:readline/promises'
import { isatty } from 'node:tty'
import { type Command, Option } from 'commander'
import { repositoryOf } from '../../agent/repository.ts'
import { CommandFailure, EXIT, usageError } from '../exit.ts'
import { AGENT_HOOKS, type AgentHost, hooksFile, withHooks, withoutHooks } from '../init/agent-hooks.ts'
import { GIT_HOOKS, isEmptyHook, withGitHook, withoutGitHook } from '../init/git-hooks.ts'
import { addGlobalOptions, commandInput } from '../invocation.ts'
import { clean } from '../output.ts'

interface InitFlags {
  readonly yes?: boolean
  readonly remove?: boolean
  readonly user?: boolean
  readonly agent?: string
  readonly failClosed?: boolean
  readonly command?: string
}

/** A file before and after. */
interface FileChange {
  readonly path: string
  readonly before: string | undefined
  readonly after: string | undefined
  readonly executable?: true
}

const TARGETS = ['claude', 'codex', 'cursor', 'git'] as const

export function init(program: Command): void {
  addGlobalOptions(program.command('init'), ['store', 'config'])
    .summary('write the hooks of a coding agent or of git that make claims binding')
    .description(
      'Writes the hooks of TARGET for the repository in the present folder. Shows what it would write first, and changes nothing without yes. --remove takes out exactly what it wrote.',
    )
    .argument('<target>', `${TARGETS.join(', ')}`)
    .option('--yes', 'write without asking')
    .option('--remove', 'take the hooks out again, and leave everything else as it is')
    .option('--user', 'for all repositories of this user (in the home folder) instead of this one; not for git')
    .option('--agent <name>', 'the name under which the agent claims (default: by its process)')
    .option('--fail-closed', 'deny what cannot be decided, for example while the server is away (default: allow it, with a warning)')
    .addOption(
      new Option('--command <command>', 'how to start this program in a hook (default: leasehold if it is on the PATH, else its path)'),
    )
    .action(async (target: string, flags: InitFlags, self: Command) => {
      if (!(TARGETS as readonly string[]).includes(target))
        throw usageError(`leasehold init takes ${TARGETS.join(', ')}, not ${target}`, 'Name the agent whose hooks are to be written.')
      if (flags.user === true && target === 'git')
        throw usageError('--user is not for git: its hooks are those of one repository', 'Leave it out.')
      const { settings } = commandInput(self)
      const command = hookCommand(
        flags,
        self.opts<{ store?: string }>().store === undefined && settings.urlSource === undefined ? undefined : settings.url,
      )
      const changes = await changesFor(target as (typeof TARGETS)[number], flags, command)
      await carryOut(changes, target, flags)
    })
}

/** The command line of the hooks, without what distinguishes them. */
function hookCommand({ agent, failClosed, command }: InitFlags, url: string | undefined): string {
  return [
    `${command ?? programCommand()} guard`,
    ...(url === undefined ? [] : [`--store ${quote(url)}`]),
    ...(agent === undefined ? [] : [`--agent ${quote(agent)}`]),
    ...(failClosed === true ? ['--fail-closed'] : []),
  ].join(' ')
}

function programCommand(): string {
  const folders = (process.env.PATH ?? '').split(delimiter)
  if (folders.some(folder => folder !== '' && existsSync(join(folder, 'leasehold')))) return 'leasehold'
  return `${quote(process.execPath)} ${quote(resolve(process.argv[1]!))}`
}

function quote(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

async function changesFor(target: (typeof TARGETS)[number], flags: InitFlags, command: string): Promise<readonly FileChange[]> {
  const repository = await repositoryOf(process.cwd())
  if (repository === undefined && flags.user !== true)
    throw usageError('the present folder is in no git repository', target === 'git' ? 'Go into one.' : 'Go into one, or use --user.')
  if (target === 'git') return GIT_HOOKS.map(hook => gitChange(hook, join(hooksFolder(repository!.gitDir), hook), flags, command))
  const path = hooksFile(target, flags.user === true ? homedir() : repository!.root)
  const before = readIfThere(path)
  const after = edit(path, () => {
    if (flags.remove !== true) return withHooks(target, before, `${command} --host ${target}`)
    return before === undefined ? undefined : withoutHooks(target, before)
  })
  return [{ path, before, after: flags.remove === true && isEmptySettings(target, after) && before !== after ? undefined : after }]
}

function isEmptySettings(target: AgentHost, text: string | undefined): boolean {
  return text !== undefined && text.replace(/\s/g, '') === AGENT_HOOKS[target].empty.replace(/\s/g, '')
}

function gitChange(hook: (typeof GIT_HOOKS)[number], path: string, flags: InitFlags, command: string): FileChange {
  const before = readIfThere(path)
  const after = edit(path, () => {
    if (flags.remove !== true) return withGitHook(hook, before, command)
    const left = before === undefined ? undefined : withoutGitHook(before)
    return left !== undefined && left !== before && isEmptyHook(left) ? undefined : left
  })
  return { path, before, after, executable: true }
}

/** All worktrees of a repository share its hooks, unless core.hooksPath says otherwise. */
function hooksFolder(gitDir: string): string {
  const common = readIfThere(join(gitDir, 'commondir'))
  const shared = common === undefined ? gitDir : resolve(gitDir, common.trim())
  const [, named] = /^\s*hooksPath\s*=\s*(.+?)\s*$/im.exec(readIfThere(join(shared, 'config')) ?? '') ?? []
  return named === undefined ? join(shared, 'hooks') : resolve(process.cwd(), named.replace(/^~(?=\/)/, homedir()))
}

function edit<T>(path: string, change: () => T): T {
  try {
    return change()
  } catch (error) {
    throw new CommandFailure({
      ...{ exit: EXIT.configuration, code: 'CONFIGURATION', message: `${path} cannot be edited: ${(error as Error).message}` },
      ...{ means: 'Nothing was changed.', next: 'Correct the file, or move it away, and run the command again.' },
    })
  }
}

function readIfThere(path: string): string | undefined {
  return existsSync(path) && lstatSync(path).isDirectory() === false ? readFileSync(path, 'utf8') : undefined
}

async function carryOut(all: readonly FileChange[], target: string, flags: InitFlags): Promise<void> {
  const changes = all.filter(({ before, after }) => before !== after)
  if (changes.length === 0) {
    process.stdout.write(
      flags.remove === true ? `There are no hooks of leasehold for ${target} here.\n` : `The hooks for ${target} are in place already.\n`,
    )
    return
  }
  for (const change of changes) show(change)
  if (flags.yes !== true && !(await confirmed())) {
    process.stdout.write('Nothing was changed. To write it without this question: --yes\n')
    if (!isatty(0)) process.exitCode = EXIT.failed
    return
  }
  for (const change of changes) write(change)
  if (flags.remove === true) process.stdout.write('Removed.\n')
  else
    process.stdout.write(
      `Written. ${target === 'git' ? 'git runs them from now on.' : AGENT_HOOKS[target as AgentHost].next} To undo: leasehold init ${target} --remove\n`,
    )
}

/** The lines that come and go. */
function show({ path, before, after }: FileChange): void {
  const old = before?.split('\n') ?? []
  const now = after?.split('\n') ?? []
  let head = 0
  while (head < old.length && head < now.length && old[head] === now[head]) head++
  let tail = 0
  while (tail < old.length - head && tail < now.length - head && old.at(-1 - tail) === now.at(-1 - tail)) tail++
  const what = before === undefined ? 'a new file' : after === undefined ? 'is deleted' : `line ${head + 1}`
  const lines = [
    ...old.slice(head, old.length - tail).map(line => `- ${line}`),
    ...now.slice(head, now.length - tail).map(line => `+ ${line}`),
  ]
  process.stdout.write(`${clean(path)} (${what}):\n${lines.map(line => `  ${clean(line)}`).join('\n')}\n\n`)
}

async function confirmed(): Promise<boolean> {
  if (!isatty(0)) return false
  const question = createInterface({ input: process.stdin, output: process.stdout })
  try {
    return /^y(es)?$/i.test((await question.question('Write this? [yes/no] ')).trim())
  } finally {
    question.close()
  }
}

/** Beside the file first: a crash in the middle must not leave half of a user's settings. A file that has changed since it was shown is left alone. */
function write({ path, before, after, executable }: FileChange): void {
  if (readIfThere(path) !== before)
    throw new CommandFailure({
      ...{ exit: EXIT.failed, code: 'STALE', message: `${path} was changed by another program meanwhile` },
      ...{ means: 'This file was not changed.', next: 'Run the command again.' },
    })
  if (after === undefined) return rmSync(path)
  mkdirSync(dirname(path), { recursive: true })
  const mode = before === undefined ? (executable === true ? 0o755 : 0o644) : statSync(path).mode & 0o777
  // Through a symbolic link, so that the link stays one.
  if (before !== undefined && lstatSync(path).isSymbolicLink()) return writeFileSync(path, after)
  const beside = `${path}.leasehold-${process.pid}`
  writeFileSync(beside, after, { mode })
  chmodSync(beside, executable === true ? mode | 0o111 : mode)
  renameSync(beside, path)
}
