/**
 * `leasehold guard`: a hook of a coding agent or of git. It reads an event, asks the server, and prints the answer that the host reads.
 *
 * It runs on every edit, so it loads neither the library nor the other commands while it talks to a server (measured: docs/guard.md). Without a
 * server it opens the store itself, which is slower. If it cannot decide, it allows the edit and warns; with --fail-closed it denies.
 */
import { request as httpRequest } from 'node:http'
import { hostname } from 'node:os'
import { type Repository, RepositoryFinder, repositoryOf } from '../agent/repository.ts'
import { type GuardDecision, hookAnswer } from '../guard/hook-answer.ts'
import { type HookEvent, MAX_PATHS, readHookEvent, withoutContents } from '../guard/hook-event.ts'
import { type AgentProcess, hostProcess } from '../guard/host-process.ts'
import { recordedTokens, recordTokens } from '../guard/token-file.ts'
import { type GuardFlags, notGuarded, readInput, say, serverOf, undecided } from './guard-flags.ts'

/** The output of git is read up to this length. */
const MAX_OUTPUT_BYTES = 32 << 20
/** The longest wait for the server. Hosts end a hook after some seconds, and then nothing would be said. */
const TIMEOUT = 4_000
const NO_COMMIT = /^0+$/

export { guardFlags } from './guard-flags.ts'

/** Runs the hook. Returns the exit code. */
export async function guard(flags: GuardFlags): Promise<number> {
  return flags.git === undefined ? guardAgent(flags) : guardGit(flags, flags.git)
}

async function guardAgent(flags: GuardFlags): Promise<number> {
  let event: HookEvent
  try {
    event = readHookEvent(flags.host, JSON.parse(readInput()))
  } catch (error) {
    // Which event it was is unknown, so is the form of a denial: 2 is one in every host.
    const denied = flags.failClosed
    say(`${denied ? 'the guard cannot decide' : notGuarded('an edit')}: ${(error as Error).message}`)
    return denied ? 2 : 0
  }
  const decision = await decideOrWarn(event, flags)
  const answer = hookAnswer(event, decision)
  if (decision.warning !== undefined) say(decision.warning.replace(/^leasehold: /, ''))
  if (answer !== undefined) process.stdout.write(`${JSON.stringify(answer)}\n`)
  return 0
}

/** A commit or push: each path is checked, and the tokens that were recorded when it was written. */
async function guardGit(flags: GuardFlags, hook: 'pre-commit' | 'pre-push'): Promise<number> {
  let reasons: readonly string[]
  try {
    const cwd = process.cwd()
    const repository = await repositoryOf(cwd)
    const paths = await (hook === 'pre-commit' ? stagedPaths() : pushedPaths(readInput()))
    const tokens = repository === undefined ? new Map<string, number>() : recordedTokens(repository.gitDir)
    const found: string[] = []
    for (let i = 0; i < paths.length && repository !== undefined; i += MAX_PATHS) {
      const part = paths.slice(i, i + MAX_PATHS)
      const known = part.map(path => `${repository.prefix}/${path}`).filter(resource => tokens.has(resource))
      const event: HookEvent = {
        ...{ host: 'git', kind: 'commit', name: hook, session: '', cwd: repository.root, paths: part, tool: 'git' },
        tokens: Object.fromEntries(known.map(resource => [resource, tokens.get(resource)!])),
      }
      const { allow, reason = '', warning } = await decideOrWarn(event, flags)
      if (warning !== undefined) say(warning.replace(/^leasehold: /, ''))
      if (!allow) found.push(reason)
    }
    reasons = found
  } catch (error) {
    say(`${flags.failClosed ? 'the guard cannot decide' : notGuarded(`this ${hook.slice(4)}`)}: ${(error as Error).message}`)
    return flags.failClosed ? 1 : 0
  }
  if (reasons.length === 0) return 0
  process.stderr.write(`${reasons.join('\n')}\nTo go on all the same: git ${hook.slice(4)} --no-verify\n`)
  return 1
}

async function stagedPaths(): Promise<readonly string[]> {
  return (await git(['diff', '--cached', '--name-only', '-z', '--no-renames'])).split('\0').filter(Boolean)
}

/** The paths that the pushed commits change. */
async function pushedPaths(refs: string): Promise<readonly string[]> {
  const paths = new Set<string>()
  for (const line of refs.split('\n')) {
    const [, local, , remote] = line.trim().split(' ')
    if (local === undefined || remote === undefined || !/^[0-9a-f]{40,64}$/.test(local) || NO_COMMIT.test(local)) continue
    const range = NO_COMMIT.test(remote) ? [local, '--not', '--remotes'] : [`${remote}..${local}`]
    for (const path of (await git(['log', '--format=', '--name-only', '-z', '--no-renames', ...range])).split('\0'))
      if (path !== '') paths.add(path)
  }
  return [...paths]
}

async function git(args: readonly string[]): Promise<string> {
  const { spawnSync } = await import('node:child_process')
  const { status, stdout, stderr, error } = spawnSync('git', args, { encoding: 'utf8', maxBuffer: MAX_OUTPUT_BYTES })
  if (status !== 0) throw error ?? new Error(`git ${args[0]} failed: ${stderr.trim()}`)
  return stdout
}

async function decideOrWarn(event: HookEvent, flags: GuardFlags): Promise<GuardDecision> {
  try {
    const decision = await ask(event, flags)
    await remember(event, decision)
    return decision
  } catch (error) {
    const why = (error as Error).message
    return undecided(event.kind, why, flags.failClosed)
  }
}

async function ask(event: HookEvent, flags: GuardFlags): Promise<GuardDecision> {
  if (event.problem !== undefined) throw new Error(event.problem)
  const url = flags.store ?? (process.env.LEASEHOLD_URL || undefined)
  const host = hostProcess()
  const agent = flags.agent ?? (process.env.LEASEHOLD_AGENT || undefined)
  const server = url === undefined ? undefined : serverOf(url)
  if (server !== undefined) return askServer(server, event, flags, host, agent)
  const { decideHere } = await import('./guard-in-process.ts')
  return decideHere({ event, host, ...(url !== undefined && { url }), ...(agent !== undefined && { agent }) })
}

/** Asks once for each repository that is written to, since the server may be on another machine and not see them. Paths in no repository are not guarded. */
async function askServer(
  server: URL,
  event: HookEvent,
  flags: GuardFlags,
  host: AgentProcess | undefined,
  agent: string | undefined,
): Promise<GuardDecision> {
  const query = {
    host: event.host,
    answer: 'decision',
    machine: hostname(),
    ...(agent !== undefined && { agent }),
    ...(host !== undefined && { pid: `${host.pid}`, started: host.started }),
    ...(flags.failClosed && { failClosed: 'true' }),
  }
  if (event.paths.length === 0) return sendEvent(server, query, event)
  let decision: GuardDecision = { allow: true }
  for (const { repository, paths } of await writtenBy(event)) {
    const { root, prefix } = repository
    const next = await sendEvent(server, { ...query, root, prefix }, { ...event, paths })
    decision = { ...decision, ...next, tokens: { ...decision.tokens, ...next.tokens } }
    if (!next.allow) break
  }
  return decision
}

async function sendEvent(server: URL, query: Readonly<Record<string, string>>, event: HookEvent): Promise<GuardDecision> {
  const key = decodeURIComponent(server.password || server.username) || process.env.LEASEHOLD_API_KEY
  const body = JSON.stringify(withoutContents(event))
  const options = {
    method: 'POST',
    path: `/v1/hooks/agent?${new URLSearchParams(query)}`,
    agent: false,
    timeout: TIMEOUT,
    headers: {
      'Content-Type': 'application/json',
      'Content-Length': Buffer.byteLength(body),
      ...(key !== undefined && key !== '' && { Authorization: `Bearer ${key}` }),
    },
  } as const
  // TLS takes as long to load as all the rest together.
  const send = server.protocol === 'https:' ? (await import('node:https')).request : httpRequest
  return new Promise((settle, fail) => {
    const sent = send({ hostname: server.hostname.replace(/^\[|\]$/g, ''), port: server.port, ...options }, response => {
      let answer = ''
      response.setEncoding('utf8')
      response.on('data', chunk => (answer += chunk))
      response.on('end', () => {
        try {
          const read = JSON.parse(answer)
          if (response.statusCode === 200 && typeof read.allow === 'boolean') settle(read)
          else fail(new Error(read?.error?.message ?? `the server answered with ${response.statusCode}`))
        } catch {
          fail(new Error(`the server at ${server.host} answered with something else than a decision`))
        }
      })
    })
    sent.on('timeout', () => sent.destroy(new Error(`no answer for ${TIMEOUT / 1_000} s`)))
    sent.on('error', error =>
      fail(new Error(`the server at ${server.host} cannot be asked (${error.message || (error as NodeJS.ErrnoException).code})`)),
    )
    sent.end(body)
  })
}

interface WrittenRepository {
  readonly repository: Repository
  readonly paths: string[]
}

/** Returns what an event writes, by repository. */
async function writtenBy({ paths, cwd, kind }: HookEvent): Promise<readonly WrittenRepository[]> {
  const finder = new RepositoryFinder()
  const byRoot = new Map<string, WrittenRepository>()
  for (const path of paths)
    for (const { path: name, repository } of await finder.changed(path, cwd, kind === 'commit')) {
      const known = byRoot.get(repository.root) ?? { repository, paths: [] }
      known.paths.push(name)
      byRoot.set(repository.root, known)
    }
  return [...byRoot.values()]
}

async function remember(event: HookEvent, { allow, tokens = {} }: GuardDecision): Promise<void> {
  if (!allow || Object.keys(tokens).length === 0 || event.kind !== 'before') return
  try {
    for (const { repository } of await writtenBy(event)) {
      const own = Object.entries(tokens).filter(([resource]) => resource.startsWith(`${repository.prefix}/`))
      recordTokens(repository.gitDir, Object.fromEntries(own))
    }
  } catch (error) {
    say(`the tokens of this edit could not be recorded, so a commit cannot check them: ${(error as Error).message}`)
  }
}
