/** `leasehold pool reserve`: members for a window of time that begins later. */
import { hostname } from 'node:os'
import type { Command } from 'commander'
import { nextTimeOfDay, timeOfText } from '../../../clock.ts'
import { inWords, parseDuration } from '../../../duration.ts'
import { LeaseError } from '../../../errors.ts'
import { CommandFailure, failureOf, usageError } from '../../exit.ts'
import { localTime } from '../../format.ts'
import { withStoreFlags } from '../../hints.ts'
import { addGlobalOptions, type Invocation, invoke } from '../../invocation.ts'
import { requireValidName } from '../../name.ts'
import { writeStderrLine } from '../../output.ts'
import { withAccounts } from './account.ts'
import {
  addRequestOptions,
  onThisHost,
  parseRequest,
  poolFailure,
  type RequestFlags,
  requestInWords,
  userName,
  withBoundAccount,
} from './request.ts'

interface ReserveFlags extends RequestFlags {
  readonly from: string
  readonly showUp: string
}

export function reserve(group: Command): void {
  const command = addGlobalOptions(group.command('reserve'))
    .summary('reserve members for a window of time that begins later')
    .description(
      'Reserves members of POOL and prints the id of the reservation. Use it with leasehold pool take --reservation ID. Refused if other reservations take too much at that time.',
    )
    .argument('<pool>', 'the name of the pool')
    .requiredOption('--from <time>', 'when the window begins: 14:00, 2026-11-20T14:00 (local time), or 2h from now (required)')
    .option('--show-up <duration>', 'how long after its beginning the reservation waits for you', '15m')
  addRequestOptions(command, ['ttl', 'total', 'priority']).action(async (pool: string, options: ReserveFlags, self: Command) => {
    requireValidName(pool)
    if (options.for === undefined) throw usageError('--for is missing', 'Say how long the window lasts: --for 2h')
    const length = parseDuration(options.for, '--for')
    const ttl = parseDuration(options.showUp, '--show-up')
    const { count, conditions, options: asked } = parseRequest(options)
    await invoke(
      self,
      async ({ leases, out, clock, read }) => {
        const { value: view } = await read({ kind: 'pool', pool, limit: 0 })
        const match = onThisHost(view, conditions, options)
        const from = parseTime(options.from, clock.wall())
        const { units, near, account, expect, preemptible } = asked
        const request = Object.fromEntries(
          Object.entries({ units, near, account, expect, preemptible }).filter(([, value]) => value !== undefined),
        )
        const labels = { user: userName(), host: options.host ?? hostname() }
        const reserve = (account: string | undefined) =>
          leases.pool(pool).reserve(count, { ...request, account, match, from, for: length, ttl, labels })
        const { lease } = await withBoundAccount(options, asked.account, reserve).catch(async error => {
          throw await refusal(error, pool, read)
        })
        const at = clock.wall() + from
        if (out.json) return out.data({ reserved: lease, pool, from, at, for: length })
        await out.text(String(lease))
        const what = requestInWords({ ...request, count, match })
        out.note(`reserved ${what} of ${pool} for ${inWords(length)} from ${localTime(at)}, in ${inWords(from)}`)
        writeStderrLine(`  Use it:       ${withStoreFlags(`leasehold pool take ${pool} --reservation ${lease}`)} -- CMD`)
        writeStderrLine(`  Give it back: ${withStoreFlags(`leasehold pool return ${lease}`)}`)
      },
      undefined,
      // The process that takes it has the same name.
      { holder: userName() },
    )
  })
}

/** Ms from `now`, the time of this machine's wall clock, to a time of day, a date or the end of a duration. */
export function parseTime(text: string, now: number): number {
  const [, hours, minutes] = /^(\d{1,2}):(\d{2})$/.exec(text) ?? []
  if (hours !== undefined && Number(hours) < 24 && Number(minutes) < 60) return nextTimeOfDay(now, Number(hours), Number(minutes)) - now
  if (/^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?(Z|[+-]\d{2}:\d{2})?$/.test(text)) {
    const at = timeOfText(text.replace(' ', 'T'))
    if (at > now) return at - now
    if (at <= now) throw usageError(`--from ${text} is over`, 'Name a time that has not come yet.')
  }
  if (/^\+?\d.*[a-z]$/.test(text)) {
    const ms = parseDuration(text.replace('+', ''), '--from')
    if (ms > 0) return ms
  }
  throw usageError(`--from takes 14:00, 2026-11-20T14:00 or a duration such as 2h, not ${text}`, 'Correct the value.')
}

async function refusal(error: unknown, pool: string, read: Invocation['read']): Promise<unknown> {
  if (!LeaseError.is(error, 'HELD')) return poolFailure(error, pool)
  const next = `Choose another time or fewer members. To see the reservations, run: leasehold pool queue ${pool}`
  const message = await withAccounts({ read }, error)
  return new CommandFailure({ ...failureOf(error), message, means: 'Nothing was reserved.', next }, { cause: error })
}
