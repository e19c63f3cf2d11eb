/** `leasehold init`: writes the MCP entries and the hooks that make claims binding. It shows what it would write, and changes nothing without a yes. */
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { createInterface } from 'node:readline/promises'
import { isatty } from 'node:tty'
import { type Command, Option } from 'commander'
import { repositoryOf } from '../../agent/repository.ts'
import { CommandFailure, EXIT, usageError } from '../exit.ts'
import { AGENT_HOOKS, type AgentHost, hooksFile, withHooks, withoutHooks } from '../init/agent-hooks.ts'
import { isOnPath, presentHosts } from '../init/detect.ts'
import { GIT_HOOKS, isEmptyHook, withGitHook, withoutGitHook } from '../init/git-hooks.ts'
import { findOrStartServer } from '../init/local-server.ts'
import { type McpEntry, withMcpEntry, withoutMcpEntry } from '../init/mcp-entries.ts'
import { forgetOriginal, keepOriginal, originalOf } from '../init/originals.ts'
import { addGlobalOptions, commandInput } from '../invocation.ts'
import { parseInteger } from '../option-values.ts'
import { clean } from '../output.ts'

interface InitFlags {
  readonly yes?: boolean
  readonly remove?: boolean
  readonly user?: boolean
  readonly local?: boolean
  readonly agent?: string
  readonly failClosed?: boolean
  readonly command?: string
  readonly mcp: boolean
  readonly server: boolean
  readonly port: string
}

/** A file before and after. */
interface FileChange {
  readonly path: string
  readonly before: string | undefined
  readonly after: string | undefined
  readonly executable?: true
}

/** A file of an agent's configuration. `base`: its text before ours, if that is known. */
interface SettingsChange extends FileChange {
  readonly base: string | undefined
  readonly target: AgentHost
  /** Takes our parts out. */
  readonly strip: (text: string) => string
}

type InitChange = FileChange | SettingsChange

const TARGETS = ['claude', 'codex', 'cursor', 'gemini', 'git'] as const
type Target = (typeof TARGETS)[number]

export function init(program: Command): void {
  addGlobalOptions(program.command('init'), ['store', 'config'])
    .summary('set up coding agents and git: MCP tools, hooks that make claims binding, and a server')
    .description(
      'Sets up the coding agents that are here, and git, for the repository in the present folder: the entry of leasehold mcp, the hooks that make claims binding, and one server for all of them, which is found or started. Shows what it would write first, and changes nothing without yes. --remove takes out exactly what it wrote.',
    )
    .argument('[targets...]', `${TARGETS.join(', ')} (default: those that are here)`)
    .option('--yes', 'write without asking')
    .option('--remove', 'take everything out again, and leave everything else as it is')
    .option('--user', 'for all repositories of this user (in the home folder) instead of this one; not for git')
    .option('--local', 'hooks of Claude Code for this user alone (.claude/settings.local.json)')
    .option('--agent <name>', 'the name under which the agent claims (default: by its process)')
    .option('--fail-closed', 'deny what cannot be decided, for example while the server is away (default: allow it, with a warning)')
    .option('--no-mcp', 'write hooks only')
    .option('--no-server', 'neither look for a server nor start one')
    .option('--port <port>', 'the port of the server on this machine that is found or started; with --store, none is', '7420')
    .addOption(
      new Option('--command <command>', 'how to start this program in a hook (default: leasehold if it is on the PATH, else its path)'),
    )
    .action(async (targets: string[], flags: InitFlags, self: Command) => {
      const wrong = targets.find(target => !(TARGETS as readonly string[]).includes(target))
      if (wrong !== undefined)
        throw usageError(`leasehold init takes ${TARGETS.join(', ')}, not ${wrong}`, 'Name the agents that are to be set up, or none.')
      if (flags.user === true && targets.includes('git'))
        throw usageError('--user is not for git: its hooks are those of one repository', 'Leave it out.')
      const port = parsePort(flags.port)
      const { settings } = commandInput(self)
      const isStoreGiven = self.opts<{ store?: string }>().store !== undefined || settings.urlSource !== undefined
      const usesServer = !isStoreGiven && flags.server
      const url = isStoreGiven ? settings.url : usesServer ? `http://127.0.0.1:${port}` : undefined
      const chosen = targets.length > 0 ? (targets as Target[]) : await presentTargets(flags)
      const changes = await changesFor(chosen, flags, url)
      const carriedOut = await carryOut(changes, chosen, flags)
      if (carriedOut && usesServer && flags.remove !== true) await findOrStart(port, settings.url)
    })
}

async function presentTargets({ user }: InitFlags): Promise<readonly Target[]> {
  const repository = await repositoryOf(process.cwd())
  const hosts = presentHosts(repository?.root ?? homedir(), homedir(), process.env.PATH ?? '')
  const here: readonly Target[] = repository !== undefined && user !== true ? [...hosts, 'git'] : hosts
  if (here.length === 0)
    throw usageError('there is no coding agent here, and no git repository', `Name one: leasehold init ${TARGETS.join(', ')}`)
  process.stdout.write(`Here: ${here.join(', ')}.\n\n`)
  return here
}

async function findOrStart(port: number, store: string): Promise<void> {
  const server = await findOrStartServer(port, store)
  process.stdout.write(
    server.kind === 'found'
      ? `The server on 127.0.0.1:${port} is there already.\n`
      : `Started a server on 127.0.0.1:${port} (process ${server.pid}, log ${clean(server.log)}). It ends with this machine: see docs/operate/install.md for one that starts by itself.\n`,
  )
}

function parsePort(text: string): number {
  const port = parseInteger(text, '--port')
  if (port >= 1 && port <= 65_535) return port
  throw usageError(`--port must be from 1 to 65535, not ${text}`, 'Choose a free port, such as 7420.')
}

/** The command that starts this program: as text, and as a list. */
interface Starting {
  readonly guard: string
  readonly mcp: readonly string[]
}

function starting({ command }: InitFlags): Starting {
  const script = resolve(process.argv[1]!)
  const fast = join(dirname(realpathSync(script)), 'leasehold-guard.cjs')
  if (command !== undefined) return { guard: `${command} guard`, mcp: ['sh', '-c', `exec ${command} "$@"`, 'leasehold'] }
  if (isOnPath('leasehold', process.env.PATH ?? '') && isOnPath('leasehold-guard', process.env.PATH ?? ''))
    return { guard: 'leasehold-guard', mcp: ['leasehold'] }
  return {
    guard: `${quote(process.execPath)} ${existsSync(fast) ? quote(fast) : `${quote(script)} guard`}`,
    mcp: [process.execPath, script],
  }
}

/** The command line of the hooks, without what distinguishes them. */
function hookCommand(flags: InitFlags, url: string | undefined): string {
  const { agent, failClosed } = flags
  return [
    starting(flags).guard,
    ...(url === undefined ? [] : [`--store ${quote(url)}`]),
    ...(agent === undefined ? [] : [`--agent ${quote(agent)}`]),
    ...(failClosed === true ? ['--fail-closed'] : []),
  ].join(' ')
}

function mcpEntry(flags: InitFlags, url: string | undefined): McpEntry {
  const [command, ...args] = starting(flags).mcp
  const agent = flags.agent === undefined ? [] : ['--agent', flags.agent]
  return { command: command!, args: [...args, 'mcp', ...(url === undefined ? [] : ['--store', url]), ...agent] }
}

function quote(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

async function changesFor(targets: readonly Target[], flags: InitFlags, url: string | undefined): Promise<readonly InitChange[]> {
  const repository = await repositoryOf(process.cwd())
  if (repository === undefined && (flags.user !== true || targets.includes('git')))
    throw usageError('the present folder is in no git repository', targets.includes('git') ? 'Go into one.' : 'Go into one, or use --user.')
  const command = hookCommand(flags, url)
  const git: FileChange[] = []
  const settings = new Map<string, SettingsChange>()
  for (const target of targets) {
    if (target === 'git') {
      for (const hook of GIT_HOOKS) git.push(gitChange(hook, join(hooksFolder(repository!.gitDir), hook), flags, command))
      continue
    }
    const root = flags.user === true ? homedir() : repository!.root
    const { mcp } = AGENT_HOOKS[target]
    const hooks = `${command} --host ${target}`
    const hooksPath = hooksFile(target, root, flags.local === true && flags.user !== true)
    const mcpPath = join(root, ...(flags.user === true ? mcp.userFile : mcp.file))
    // In a file that has both, the entry stays behind the hooks: it is taken out and added again, so that a second run changes nothing.
    const isOneFile = flags.mcp && mcpPath === hooksPath
    const isRemoved = flags.remove === true
    changeSettings(settings, hooksPath, target, isRemoved, {
      add: text => withHooks(target, isOneFile && text !== undefined ? withoutMcpEntry(mcp.format, text) : text, hooks),
      strip: text => withoutHooks(target, text),
    })
    if (!flags.mcp) continue
    changeSettings(settings, mcpPath, target, isRemoved, {
      add: text => withMcpEntry(mcp.format, text, mcpEntry(flags, url)),
      strip: text => withoutMcpEntry(mcp.format, text),
    })
  }
  return [...settings.values(), ...git]
}

interface Edits {
  readonly add: (text: string | undefined) => string
  readonly strip: (text: string) => string
}

/** A second change of one file comes after the first. */
function changeSettings(
  changes: Map<string, SettingsChange>,
  path: string,
  target: AgentHost,
  isRemoved: boolean,
  { add, strip }: Edits,
): void {
  const known = changes.get(path)
  const before = known === undefined ? readIfThere(path) : known.before
  const original = originalOf(path, before)
  const text = known === undefined ? (original ?? before) : known.after
  const stripAll = known === undefined ? strip : (each: string) => strip(known.strip(each))
  if (!isRemoved) {
    const after = edit(path, () => add(text))
    const base = original ?? (before !== undefined && stripAll(before) === before ? before : undefined)
    changes.set(path, { path, before, base, target, strip: stripAll, after })
    return
  }
  const after = original ?? edit(path, () => text && strip(text))
  const isLeftEmpty = original === undefined && before !== undefined && after !== before && isEmptySettings(target, after)
  changes.set(path, { path, before, base: undefined, target, strip: stripAll, after: isLeftEmpty ? undefined : after })
}

function isEmptySettings(target: AgentHost, text: string | undefined): boolean {
  const bare = text?.replace(/\s/g, '')
  return bare === '' || bare === '{}' || bare === AGENT_HOOKS[target].empty.replace(/\s/g, '')
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

/** Returns whether everything is as it was asked for. */
async function carryOut(all: readonly InitChange[], targets: readonly Target[], flags: InitFlags): Promise<boolean> {
  const changes = all.filter(({ before, after }) => before !== after)
  const names = targets.join(', ')
  if (changes.length === 0) {
    process.stdout.write(
      flags.remove === true ? `There is nothing of leasehold for ${names} here.\n` : `Everything for ${names} is in place already.\n`,
    )
    return true
  }
  for (const change of changes) show(change)
  if (flags.yes !== true && !(await confirmed())) {
    process.stdout.write('Nothing was changed. To write it without this question: --yes\n')
    if (!isatty(0)) process.exitCode = EXIT.failed
    return false
  }
  for (const change of changes) {
    write(change)
    if ('strip' in change) noteOriginal(change, flags)
  }
  if (flags.remove === true) process.stdout.write('Removed. A server that init started goes on.\n')
  else {
    const next = targets.map(target => (target === 'git' ? 'git runs its hooks from now on.' : AGENT_HOOKS[target].next))
    process.stdout.write(`Written. ${next.join(' ')} To undo: leasehold init ${targets.join(' ')} --remove\n`)
  }
  return true
}

/** Keeps the text from before `init` where taking our parts out would not give it back. After a removal it is forgotten, and a folder that is left empty is removed. */
function noteOriginal({ path, base, target, after, strip }: SettingsChange, { remove }: InitFlags): void {
  if (remove !== true && base !== undefined && after !== undefined) {
    const left = strip(after)
    if (left !== base || isEmptySettings(target, left)) return keepOriginal(path, { before: base, after })
  }
  forgetOriginal(path)
  const folder = dirname(path)
  if (after === undefined && readdirSync(folder).length === 0) rmdirSync(folder)
}

/** The lines that come and go. */
function show({ path, before, after }: FileChange): void {
  const old = linesOf(before)
  const now = linesOf(after)
  let head = 0
  while (head < old.length && head < now.length && old[head] === now[head]) head++
  let tail = 0
  while (tail < old.length - head && tail < now.length - head && old.at(-1 - tail) === now.at(-1 - tail)) tail++
  const what = before === undefined ? 'a new file' : after === undefined ? 'is deleted' : `line ${head + 1}`
  const lines = [
    ...old.slice(head, old.length - tail).map(line => `- ${line}`),
    ...now.slice(head, now.length - tail).map(line => `+ ${line}`),
  ]
  process.stdout.write(`${clean(path)} (${what}):\n${lines.map(line => `  ${cleanLine(line)}`).join('\n')}\n\n`)
}

function linesOf(text: string | undefined): string[] {
  return text === undefined ? [] : text.replace(/\n$/, '').split('\n')
}

/** Tabs are part of what is written. */
function cleanLine(line: string): string {
  return line.split('\t').map(clean).join('\t')
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
