/**
 * `leasehold pool notify`: tells the users of a pool what they should know, by a webhook or a command.
 *
 * It only reads the pool. So a receiver that hangs, or this command being down, never keeps a request waiting.
 */
import type { Command } from 'commander'
import { BACKOFF, pauseAfter } from '../../../backoff.ts'
import { pause } from '../../../clock.ts'
import { BoundedProgram } from '../../../devices/bounded-program.ts'
import { reportPrefix } from '../../../devices/report.ts'
import { parseDuration } from '../../../duration.ts'
import { LeaseError } from '../../../errors.ts'
import type { Event } from '../../../kernel/event.ts'
import { MAX_POOL_PAGE } from '../../../lessor.ts'
import { NOTICE_KINDS, type PoolNotice, PoolNotices } from '../../../pool/notices.ts'
import { readPrivately } from '../../../private-file.ts'
import { Interrupted, usageError } from '../../exit.ts'
import { addGlobalOptions, type Invocation, invoke } from '../../invocation.ts'
import { requireValidName } from '../../name.ts'
import { clean } from '../../output.ts'
import { reportsOf } from './list.ts'
import { NoticeQueue } from './notice-queue.ts'
import { ATTEMPT_TIMEOUT, noticeCommand, originOf, secretIn, webhook } from './webhook.ts'

/** Ms between two looks at a pool of which nothing is heard, and at the least between two looks. */
const LONGEST_PAUSE = 60_000
const SHORTEST_PAUSE = 500
/** The command of a slow receiver does not keep the others waiting. */
const PROGRAMS = 4

interface NotifyFlags {
  readonly webhook?: string
  readonly secretFile?: string
  readonly exec?: string
  readonly only?: string
  readonly before: string
}

const HELP = `
Notices: ending (the time of --for is nearly over), granted (after a wait), recalled (another user or idle reclaim asks for members), idle (all devices of a
lease), reservation (its window has begun).
--exec finds LEASEHOLD_NOTICE (JSON), LEASEHOLD_NOTICE_TEXT, LEASEHOLD_NOTICE_KIND and LEASEHOLD_ACCOUNT in its environment.`

export function notify(group: Command): void {
  addGlobalOptions(group.command('notify'))
    .summary('send notices to users: a lease ends soon, was granted, recalled or idle, a reservation begins; until INT or TERM')
    .description(
      'Watches POOL and prints a line for each notice. Sends it to a webhook, signed, or passes it to a command. What fails is tried again: 5 times in 6 minutes.',
    )
    .argument('<pool>', 'the name of the pool')
    .option('--webhook <url>', 'POST each notice there as JSON; needs --secret-file')
    .option('--secret-file <path>', 'the file with the secret that signs it: whsec_ and base64, readable by its owner only')
    .option('--exec <command>', 'run this by /bin/sh for each notice')
    .option('--only <kinds>', `only these notices, of ${NOTICE_KINDS.join(',')} (default: all)`)
    .option('--before <duration>', 'send a notice this long before the end of --for, or at half of it', '10m')
    .addHelpText('after', HELP)
    .action(async (pool: string, options: NotifyFlags, self: Command) => {
      requireValidName(pool)
      const kinds = kindsIn(options.only)
      const before = parseDuration(options.before, '--before')
      const target = options.webhook === undefined ? undefined : targetOf(options)
      await invoke(self, async invocation => {
        const { out, clock, signal } = invocation
        const about = { clock, report: out.note.bind(out) }
        const queues: NoticeQueue[] = []
        if (target !== undefined)
          queues.push(new NoticeQueue({ ...about, name: originOf(target.url), deliver: webhook({ ...target, clock }) }))
        if (options.exec !== undefined) {
          const program = () => new BoundedProgram({ clock, timeout: ATTEMPT_TIMEOUT })
          const programs = Array.from({ length: PROGRAMS }, program)
          queues.push(new NoticeQueue({ ...about, name: 'the command of --exec', deliver: noticeCommand(programs, options.exec) }))
        }
        const notices = new PoolNotices(before)
        try {
          out.note(`notices of ${pool} go to ${receivers(options)}`, { pool })
          await follow(invocation, pool, notices, async notice => {
            if (!kinds.has(notice.kind)) return
            for (const queue of queues) queue.add(notice)
            await (out.json ? out.data(notice) : out.text(clean(`${notice.kind.padEnd(11)} ${notice.text}`)))
          })
        } finally {
          const left = queues.reduce((sum, { pending }) => sum + pending, 0)
          for (const queue of queues) queue.close()
          if (left > 0) out.note(`${left} ${left === 1 ? 'notice was' : 'notices were'} not delivered yet`, { undelivered: left })
        }
        if (signal.reason instanceof Interrupted) throw signal.reason
      })
    })
}

function receivers({ webhook, exec }: NotifyFlags): string {
  const all = [...(webhook === undefined ? [] : [originOf(new URL(webhook))]), ...(exec === undefined ? [] : ['the command of --exec'])]
  return all.length === 0 ? 'this output' : all.join(' and ')
}

function kindsIn(only: string | undefined): ReadonlySet<string> {
  const kinds = only?.split(',').map(kind => kind.trim()) ?? NOTICE_KINDS
  const wrong = kinds.find(kind => !(NOTICE_KINDS as readonly string[]).includes(kind))
  if (wrong !== undefined) throw usageError(`there is no notice ${wrong}`, `The notices are ${NOTICE_KINDS.join(', ')}.`)
  return new Set(kinds)
}

function targetOf({ webhook: text = '', secretFile }: NotifyFlags): { readonly url: URL; readonly secret: Buffer } {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.username !== '' || url.password !== '')
    throw usageError(`--webhook takes a URL that begins with https:// or http://, without a user`, 'Correct the URL.')
  if (secretFile === undefined)
    throw usageError(
      '--webhook needs --secret-file, so that its receiver can tell our notices from others',
      'Make one: (umask 077; echo "whsec_$(openssl rand -base64 32)" > webhook.secret)',
    )
  return { url, secret: secretIn(readPrivately(secretFile)) }
}

/** Looks at the pool when something happens there, when a notice is due, and once a minute; until the signal fires. */
async function follow(
  invocation: Invocation,
  pool: string,
  notices: PoolNotices,
  give: (notice: PoolNotice) => Promise<void>,
): Promise<void> {
  const { lessor, clock, signal } = invocation
  let events: Event[] = []
  let wake = new AbortController()
  const heard = (news: readonly Event[]) => {
    events.push(...news)
    wake.abort()
  }
  const ended = new AbortController()
  const over = AbortSignal.any([signal, lessor.signal, ended.signal])
  const watching = [pool, reportPrefix(pool)].map(prefix => watchPrefix(invocation, prefix, over, heard))
  try {
    for (let failures = 0; !over.aborted; ) {
      wake = new AbortController()
      notices.saw(events)
      events = []
      let next = LONGEST_PAUSE
      try {
        const { value: view } = await lessor.read({ kind: 'pool', pool, limit: MAX_POOL_PAGE }, { consistent: true, signal: over })
        const reports = await reportsOf({ lessor, signal: over }, pool)
        const idle = [...reports].filter(([, { stage }]) => stage !== 'none').map(([member, { idle }]) => [member, idle] as const)
        for (const notice of notices.update(view, new Map(idle))) await give(notice)
        next = Math.min(LONGEST_PAUSE, Math.max(SHORTEST_PAUSE, notices.dueIn(view)))
        failures = 0
      } catch (error) {
        if (over.aborted || !LeaseError.is(error, 'UNAVAILABLE', 'TIMEOUT')) throw error
        invocation.out.note(`the pool cannot be read: ${error.message}`, { pool })
        await pause(clock, pauseAfter(BACKOFF.notices, failures++), over, { ref: true })
        continue
      }
      await pause(clock, SHORTEST_PAUSE, over, { ref: true })
      await pause(clock, next - SHORTEST_PAUSE, AbortSignal.any([over, wake.signal]), { ref: true }).catch(() => {})
    }
  } catch (error) {
    if (!signal.aborted) throw error
  } finally {
    ended.abort()
    await Promise.all(watching)
  }
  if (!signal.aborted) lessor.signal.throwIfAborted()
}

/** A key that may not watch there is given its notices late: at the next look. */
async function watchPrefix(
  { lessor, out }: Invocation,
  prefix: string,
  signal: AbortSignal,
  heard: (events: readonly Event[]) => void,
): Promise<void> {
  try {
    for await (const events of lessor.watch(prefix, { signal })) heard(events)
  } catch (error) {
    if (signal.aborted) return
    out.note(`${prefix} cannot be watched, so notices may be a minute late: ${(error as Error).message}`, { prefix })
  }
}
