/** The options that both forms of the guard share: the fast one (guard-fast.ts) and the whole one (guard-process.ts). It is loaded for every edit, so it imports little. */
import { readFileSync } from 'node:fs'
import type { GuardDecision } from '../guard/hook-answer.ts'
import { HOSTS, type HookHost, type HookKind } from '../guard/hook-event.ts'

export interface GuardFlags {
  readonly host: HookHost
  readonly store?: string
  readonly agent?: string
  readonly failClosed: boolean
  /** The hook of git that this is. */
  readonly git?: 'pre-commit' | 'pre-push'
}

const MAX_EVENT_BYTES = 32 << 20

/** The flags, or undefined if the full command line must read them: a mistake, or a request for help. */
export function guardFlags(argv: readonly string[]): GuardFlags | undefined {
  let host: string = 'claude'
  let store: string | undefined
  let agent: string | undefined
  let git: string | undefined
  let failClosed = false
  for (let i = 0; i < argv.length; i++) {
    const [name, joined] = argv[i]!.split(/=(.*)/s) as [string, string | undefined]
    const value = () => joined ?? argv[++i]
    if (name === '--host') host = value() ?? ''
    else if (name === '--store') store = value()
    else if (name === '--agent') agent = value()
    else if (name === '--git') git = value()
    else if (name === '--fail-closed' && joined === undefined) failClosed = true
    else return undefined
  }
  if (!(HOSTS as readonly string[]).includes(host) || (git !== undefined && git !== 'pre-commit' && git !== 'pre-push')) return undefined
  return {
    host: git === undefined ? (host as HookHost) : 'git',
    failClosed,
    ...(store !== undefined && { store }),
    ...(agent !== undefined && { agent }),
    ...(git !== undefined && { git: git as 'pre-commit' | 'pre-push' }),
  }
}

export function notGuarded(what: string): string {
  return `${what.toUpperCase()} IS NOT GUARDED, another agent may write the same file`
}

/** The guard could not decide. */
export function undecided(kind: HookKind, why: string, failClosed: boolean): GuardDecision {
  return failClosed
    ? { allow: false, reason: `leasehold: the guard cannot decide, and is set to refuse then: ${why}` }
    : { allow: true, warning: `leasehold: ${notGuarded(kind === 'commit' ? 'this commit' : 'this edit')}: ${why}` }
}

/** The HTTP address of a server; both wires are on one port. Undefined for a store. */
export function serverOf(url: string): URL | undefined {
  const [, scheme, rest] = /^(https?|leaseholds?):\/\/(.+)$/i.exec(url) ?? []
  if (scheme === undefined || rest!.startsWith('/')) return undefined
  const secure = /s$/i.test(scheme) && scheme.toLowerCase() !== 'leasehold'
  const address = new URL(`${secure ? 'https' : 'http'}://${rest}`)
  if (address.port === '' && /^leasehold/i.test(scheme)) address.port = '7420'
  return address
}

/** The event that the fast guard has read before it found that it needs the whole one. */
const READ_BEFORE = Symbol.for('leasehold.guard.input')
type Global = { [READ_BEFORE]?: string }

export function handOver(input: string): void {
  ;(globalThis as Global)[READ_BEFORE] = input
}

export function readInput(): string {
  const before = (globalThis as Global)[READ_BEFORE]
  if (before !== undefined) return before
  const input = readFileSync(0)
  if (input.length > MAX_EVENT_BYTES) throw new Error(`the event has more than ${MAX_EVENT_BYTES} bytes`)
  return input.toString('utf8').replace(/^\uFEFF/, '') // Cursor puts a byte order mark in front on Windows
}

export function say(text: string): void {
  process.stderr.write(`leasehold: ${text}\n`)
}
