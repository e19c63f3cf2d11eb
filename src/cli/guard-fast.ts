/**
 * `leasehold-guard`: the guard as `leasehold init` writes it into the hooks of a coding agent. It runs on every edit, so it is one file of CommonJS, loads nothing that the
 * answer does not need, and asks one question over a socket: the server on this machine finds the repositories of the paths by itself.
 *
 * Everything else is for the whole guard (guard-process.ts): a server on another machine, TLS, a store without a server, git, and mistakes in the flags.
 */
import { connect } from 'node:net'
import { hostname } from 'node:os'
import { type GuardDecision, hookAnswer } from '../guard/hook-answer.ts'
import { type HookEvent, readHookEvent, withoutContents } from '../guard/hook-event.ts'
import { hostProcess } from '../guard/host-process.ts'
import { recordTokens } from '../guard/token-file.ts'
import { type GuardFlags, guardFlags, handOver, notGuarded, readInput, say, serverOf, undecided } from './guard-flags.ts'

/** The longest wait for the server. */
const TIMEOUT = 4_000
const MAX_ANSWER_BYTES = 4 << 20

void main()

async function main(): Promise<void> {
  const flags = guardFlags(process.argv.slice(2))
  const url = flags?.store ?? (process.env.LEASEHOLD_URL || undefined)
  const server = url === undefined ? undefined : serverOf(url)
  if (flags === undefined || flags.git !== undefined || server === undefined || !isHere(server)) return wholeGuard()
  let event: HookEvent
  let input = ''
  try {
    input = readInput()
    event = readHookEvent(flags.host, JSON.parse(input))
  } catch (error) {
    // Which event it was is unknown, so is the form of a denial: 2 is one in every host.
    say(`${flags.failClosed ? 'the guard cannot decide' : notGuarded('an edit')}: ${(error as Error).message}`)
    process.exitCode = flags.failClosed ? 2 : 0
    return
  }
  let decision: LocatedDecision
  try {
    if (event.problem !== undefined) throw new Error(event.problem)
    decision = await ask(server, event, flags)
  } catch (error) {
    decision = undecided(event.kind, (error as Error).message, flags.failClosed)
  }
  if (decision.elsewhere === true) {
    handOver(input)
    return wholeGuard()
  }
  remember(event, decision)
  const answer = hookAnswer(event, decision)
  if (decision.warning !== undefined) say(decision.warning.replace(/^leasehold: /, ''))
  if (answer !== undefined) process.stdout.write(`${JSON.stringify(answer)}\n`)
}

interface LocatedDecision extends GuardDecision {
  /** The server does not see the files of this machine. */
  readonly elsewhere?: boolean
}

function isHere({ protocol, hostname: host }: URL): boolean {
  return protocol === 'http:' && (host === '127.0.0.1' || host === '[::1]' || host === 'localhost')
}

/** The file beside this one that has everything else. */
async function wholeGuard(): Promise<void> {
  const program = './leasehold.js'
  process.argv.splice(2, 0, 'guard')
  await import(program)
}

/** HTTP over a plain socket: Node's HTTP client takes longer to load than all the rest. */
function ask(server: URL, event: HookEvent, { agent, failClosed }: GuardFlags): Promise<LocatedDecision> {
  const host = hostProcess()
  const name = agent ?? (process.env.LEASEHOLD_AGENT || undefined)
  const query = new URLSearchParams({
    host: event.host,
    answer: 'decision',
    machine: hostname(),
    ...(name !== undefined && { agent: name }),
    ...(host !== undefined && { pid: `${host.pid}`, started: host.started }),
    ...(failClosed && { failClosed: 'true' }),
  })
  const key = decodeURIComponent(server.password || server.username) || process.env.LEASEHOLD_API_KEY
  const body = Buffer.from(JSON.stringify(withoutContents(event)))
  const head = [
    `POST /v1/hooks/agent?${query} HTTP/1.1`,
    `Host: ${server.host}`,
    'Connection: close',
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
    ...(key ? [`Authorization: Bearer ${key.replace(/[\r\n]/g, '')}`] : []),
  ]
  return new Promise((settle, fail) => {
    const socket = connect({ port: Number(server.port || 80), host: server.hostname.replace(/^\[|\]$/g, ''), timeout: TIMEOUT })
    const parts: Buffer[] = []
    let size = 0
    socket.on('timeout', () => socket.destroy(new Error(`no answer for ${TIMEOUT / 1_000} s`)))
    socket.on('data', part => {
      parts.push(part)
      size += part.length
      if (size > MAX_ANSWER_BYTES) socket.destroy(new Error('the answer is too long'))
    })
    socket.on('error', error =>
      fail(new Error(`the server at ${server.host} cannot be asked (${error.message || (error as NodeJS.ErrnoException).code})`)),
    )
    socket.on('close', () => {
      try {
        settle(answerOf(Buffer.concat(parts)))
      } catch (error) {
        fail(new Error(`the server at ${server.host} ${(error as Error).message}`))
      }
    })
    socket.write(Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), body]))
  })
}

function answerOf(response: Buffer): LocatedDecision {
  const at = response.indexOf('\r\n\r\n')
  const [, status = '', headers = ''] =
    /^HTTP\/1\.\d (\d+)[^\r]*\r\n(.*)$/s.exec(`${response.toString('latin1', 0, Math.max(0, at))}\r\n`) ?? []
  const length = Number(/^content-length: *(\d+)/im.exec(headers)?.[1] ?? Number.NaN)
  const body = response.subarray(at + 4)
  let read: { readonly allow?: unknown; readonly error?: { readonly message?: string } }
  try {
    if (body.length !== length) throw new Error('the answer was cut off')
    read = JSON.parse(body.toString('utf8'))
  } catch {
    throw new Error('answered with something else than a decision')
  }
  if (status === '200' && typeof read.allow === 'boolean') return read as unknown as LocatedDecision
  throw new Error(`answered: ${read.error?.message ?? status}`)
}

function remember(event: HookEvent, { allow, tokens = {}, gitDirs = {} }: GuardDecision): void {
  if (!allow || event.kind !== 'before') return
  try {
    for (const [prefix, gitDir] of Object.entries(gitDirs)) {
      const own = Object.entries(tokens).filter(([resource]) => resource.startsWith(`${prefix}/`))
      recordTokens(gitDir, Object.fromEntries(own))
    }
  } catch (error) {
    say(`the tokens of this edit could not be recorded, so a commit cannot check them: ${(error as Error).message}`)
  }
}
