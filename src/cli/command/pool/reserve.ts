/**
 * `leasehold pool reserve`: members for a window of time that begins later.
 *
 * A reservation is a lease like any other: a process keeps it by renewing it. Without a command to run, that process is started in the background, and the
 * caller gets the id of the lease. Not promised: that a reservation outlives that process or its machine.
 */
import { spawn } from 'node:child_process'
import { hostname } from 'node:os'
import type { Command } from 'commander'
import { nextTimeOfDay, unlessAborted } from '../../../clock.ts'
import { inWords, parseDuration } from '../../../duration.ts'
import { LeaseError } from '../../../errors.ts'
import type { Lease } from '../../../lease.ts'
import type { AcquireOptions } from '../../../leases.ts'
import { CommandFailure, EXIT, failureOf, Interrupted, usageError } from '../../exit.ts'
import { localTime } from '../../format.ts'
import { addGlobalOptions, commandInput, type Invocation, invoke } from '../../invocation.ts'
import { requireValidName } from '../../name.ts'
import { type Output, writeStderr } from '../../output.ts'
import { LeasedProcess } from '../../process/leased-process.ts'
import { SignalForwarder } from '../../process/signal-forwarder.ts'
import {
  addRequestOptions,
  defaultHolder,
  environmentOf,
  labelsOf,
  membersOf,
  onThisHost,
  parseRequest,
  parseTemplates,
  poolFailure,
  type RequestFlags,
  requestInWords,
} from './request.ts'

interface ReserveFlags extends RequestFlags {
  readonly from: string
  readonly foreground?: boolean
}

/** Bytes that the process in the background may print before it has reserved. */
const MAX_OUTPUT = 65_536

const HELP = `
Without CMD, a process in the background keeps the reservation until its window is over; end it with leasehold pool return.
With CMD, this process waits for the window and runs CMD in it.

Examples:
  leasehold pool reserve gpus -n 2 --from 14:00 --for 2h
  leasehold pool reserve gpus -n 8 --from 2026-11-20T08:00 --for 1d --match model=h100
  leasehold pool take gpus --reservation 178001234567 -- ./train
  leasehold pool reserve gpus --from 30m --for 1h -- ./train`

export function reserve(group: Command): void {
  const command = addGlobalOptions(group.command('reserve'))
    .summary('reserve members for a window of time that begins later')
    .argument('<pool>', 'the name of the pool')
    .argument('[cmd...]', 'a command to run when the window begins, without a shell')
    .requiredOption('--from <time>', 'when the window begins: 14:00, 2026-11-20T14:00 (local time), or 2h from now (required)')
    .option('--foreground', 'keep the reservation in this process, for a service')
  addRequestOptions(command)
    .addHelpText('after', HELP)
    .action(async (pool: string, words: string[], options: ReserveFlags, self: Command) => {
      requireValidName(pool)
      if (options.for === undefined) throw usageError('--for is missing', 'Say how long the window lasts: --for 2h')
      parseRequest(options)
      parseTime(options.from, 0)
      if (words.length === 0 && options.foreground !== true) return keepInBackground(commandInput(self).out)
      const signals = new SignalForwarder()
      const work = (invocation: Invocation) => keep(invocation, signals, pool, words, options)
      process.exitCode = await invoke(self, work, signals, { holder: defaultHolder(options.host) })
    })
}

/** Ms from `now`, the time of this machine's wall clock, to a time of day, a date or the end of a duration. */
export function parseTime(text: string, now: number): number {
  const [, hours, minutes] = /^(\d{1,2}):(\d{2})$/.exec(text) ?? []
  if (hours !== undefined && Number(hours) < 24 && Number(minutes) < 60) return nextTimeOfDay(now, Number(hours), Number(minutes)) - now
  if (/^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?(Z|[+-]\d{2}:\d{2})?$/.test(text)) {
    const at = Date.parse(text.replace(' ', 'T'))
    if (Number.isFinite(at) && at > now) return at - now
    if (Number.isFinite(at)) throw usageError(`--from ${text} is over`, 'Name a time that has not come yet.')
  }
  if (/^\+?\d/.test(text) && /[a-z]$/.test(text)) return parseDuration(text.replace('+', ''), '--from')
  throw usageError(`--from takes 14:00, 2026-11-20T14:00 or a duration such as 2h, not ${text}`, 'Correct the value.')
}

/** Keeps the reservation in this process, and runs the command in its window. */
async function keep(
  invocation: Invocation,
  signals: SignalForwarder,
  pool: string,
  command: readonly string[],
  options: ReserveFlags,
): Promise<number> {
  const { leases, out, clock, read, settings, signal } = invocation
  const { count, options: asked, conditions } = parseRequest(options)
  const { value: view } = await read({ kind: 'pool', pool })
  const match = command.length === 0 ? conditions : onThisHost(view, conditions, options)
  const from = parseTime(options.from, clock.wall())
  const at = clock.wall() + from
  const words = requestInWords({ ...asked, count, match, expect: 0 })
  const host = options.host ?? hostname()
  const labels = labelsOf({ pid: process.pid, host, ...(command[0] !== undefined && { command: command[0] }) })
  const onQueued = (lease: number) => {
    const facts = { reserved: lease, pool, from, at, for: (asked as { maxLife?: number }).maxLife, words }
    if (out.json) void out.data(facts)
    else out.note(reservedText(facts), facts)
  }
  const acquire = (more: AcquireOptions): Promise<Lease> =>
    leases.pool(pool).take(count, { ...asked, ...more, match, labels, from, advanced: { ...more.advanced, onQueued } } as never)
  try {
    if (command.length > 0) {
      const leased = new LeasedProcess({ leases, signals, out, url: settings.url, command, onLost: 'kill', grace: 5_000 })
      const env = (lease: Lease) => environmentOf(invocation, pool, lease, parseTemplates(undefined))
      return (await leased.runUnder({ name: pool, acquire, env }, {})).code
    }
    await using lease = await acquire({ signal })
    out.note(`the window has begun: ${membersOf(lease, pool).join(', ')} of ${pool} (lease ${lease.id})`, { began: lease.id })
    void lease.recalled // watch for a revoke
    await unlessAborted(new Promise(resolve => lease.signal.addEventListener('abort', resolve, { once: true })), signal)
    out.note(`the reservation is over: ${(lease.signal.reason as Error).message}`, { over: lease.id })
    return 0
  } catch (error) {
    if (error instanceof Interrupted) throw error
    const found = poolFailure(error, pool)
    if (!LeaseError.is(error, 'HELD')) throw found
    const next = `Choose another time or fewer members. To see the reservations, run: leasehold pool queue ${pool}`
    throw new CommandFailure({ ...failureOf(error), means: 'Nothing was reserved.', next }, { cause: error })
  }
}

interface ReservedFacts {
  readonly reserved: number
  readonly pool: string
  readonly words: string
  readonly from: number
  readonly at: number
  readonly for?: number | undefined
}

function reservedText({ reserved, pool, words, from, at, for: length = 0 }: ReservedFacts): string {
  return `reserved ${words} of ${pool} for ${inWords(length)} from ${localTime(at)}, in ${inWords(from)} (lease ${reserved})`
}

/** Starts this command again in the background, and returns when that has reserved, or ends as it does. */
async function keepInBackground(out: Output): Promise<void> {
  const args = [...process.argv.slice(1), '--foreground', ...(out.json ? [] : ['--json'])]
  const child = spawn(process.execPath, args, { detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  let printed = ''
  let errors = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    if (errors.length < MAX_OUTPUT) errors += text
  })
  const facts = await new Promise<ReservedFacts | undefined>((resolve, reject) => {
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      printed += text
      const end = printed.indexOf('\n')
      if (end >= 0) resolve(JSON.parse(printed.slice(0, end)) as ReservedFacts)
      else if (printed.length > MAX_OUTPUT) reject(new Error('the process in the background printed too much'))
    })
    child.once('error', reject)
    child.once('close', () => resolve(undefined))
  })
  if (facts === undefined) throw failureInBackground(errors)
  child.unref()
  child.stdout.destroy()
  child.stderr.destroy()
  if (out.json) return out.data({ ...facts, keeper: child.pid })
  await out.text(String(facts.reserved))
  out.note(`${reservedText(facts)}. Process ${child.pid} keeps it.`)
  writeStderr(
    `  Use it:       leasehold pool take ${facts.pool} --reservation ${facts.reserved} -- CMD\n  Give it back: leasehold pool return ${facts.reserved}\n`,
  )
}

/** The error that the process in the background reported as JSON. */
function failureInBackground(errors: string): CommandFailure {
  for (const line of errors.split('\n')) {
    try {
      const { error } = JSON.parse(line) as { error?: { exit: number; code: string; message: string; means: string; next: string } }
      if (error !== undefined) return new CommandFailure(error)
    } catch {
      // Not a report.
    }
  }
  const message = `the reservation could not be kept: ${errors.trim().split('\n').at(-1) || 'its process ended without a message'}`
  return new CommandFailure({
    exit: EXIT.software,
    code: 'BACKGROUND',
    message,
    means: 'Nothing was reserved.',
    next: 'Use --foreground to see more.',
  })
}
