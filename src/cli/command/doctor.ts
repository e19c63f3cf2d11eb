/** `leasehold doctor`: looks at what runs, and says what to change and why. */
import type { Command } from 'commander'
import { pause } from '../../clock.ts'
import { usersOf } from '../../connect/store-users.ts'
import { viaOf } from '../../connect/url.ts'
import { inWords, parseDuration } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import { TTL_MAX } from '../../kernel/rule/policy.ts'
import { diagnose, type Look } from '../diagnosis.ts'
import { EXIT } from '../exit.ts'
import { counted } from '../format.ts'
import { addGlobalOptions, type Invocation, invoke } from '../invocation.ts'
import { clean } from '../output.ts'
import { measurePlace } from '../place-measurement.ts'

const ROUNDS = 20
/** Doctor looks at no more than this: it must not be a burden to the server that it examines. */
const MAX_LOOKED_AT = 10_000
const MAX_HISTORIES = 200

export function doctor(program: Command): void {
  addGlobalOptions(program.command('doctor'))
    .summary('look at what runs here, and say what to change and why')
    .description(
      `Measures the store, looks at leases, queues and services twice, and prints what to change. Exits with ${EXIT.failed} if there is anything.`,
    )
    .option('--watch <duration>', 'how long to look, to see renewals', '5s')
    .action(async (options: { readonly watch: string }, self: Command) => {
      const watch = parseDuration(options.watch, '--watch')
      process.exitCode = await invoke(self, invocation => examine(invocation, watch))
    })
}

/** A key may be allowed to look at leases and not at policies. */
function noPolicies(error: unknown): { readonly value: readonly [] } {
  if (!LeaseError.is(error, 'FORBIDDEN')) throw error
  return { value: [] }
}

async function examine({ settings, leases, lessor, read, out, clock, signal }: Invocation, watch: number): Promise<number> {
  const measured = await measurePlace(leases, ROUNDS)
  const look = async (): Promise<Look> => ({
    leases: (await read({ kind: 'leases', limit: MAX_LOOKED_AT })).value,
    resources: (await read({ kind: 'resources', prefix: '', limit: MAX_LOOKED_AT })).value,
  })
  const before = await look()
  out.note(`looking at ${counted(before.leases.length, 'lease')} for ${inWords(watch)}`)
  const began = clock.now()
  await pause(clock, watch, signal, { ref: true })
  const after = await look()
  const between = clock.now() - began
  const names = [...new Set(after.resources.map(({ resource }) => resource))].slice(0, MAX_HISTORIES)
  const histories = await Promise.all(
    names.map(async resource => ({ resource, past: (await lessor.read({ kind: 'history', resource, limit: 8 })).value })),
  )
  const found = diagnose({
    ...{ before, after, between, histories, measured, wall: clock.wall() },
    summary: (await read({ kind: 'summary' })).value,
    services: (await read({ kind: 'services' })).value,
    users: await usersOf(viaOf(settings.url).url, clock).catch(() => undefined), // a role may lack the right to count them
  })
  const rules = (await read({ kind: 'policies' }).catch(noPolicies)).value
  const allowed = Math.max(
    rules.find(({ prefix }) => prefix === '')?.rules.ttlMax ?? TTL_MAX,
    ...rules.map(policy => policy.rules.ttlMax ?? 0),
  )
  out.note(
    `policies allow a ttl of ${inWords(allowed)}: to restore a backup into another store takes that long, or what --longest-ttl says`,
  )
  if (out.json) for (const finding of found) await out.data(finding)
  else if (found.length === 0)
    await out.text(
      `Nothing to change: ${counted(after.leases.length, 'lease')}, ${counted(after.resources.length, 'resource')}; a write takes ${inWords(measured.write.median)}, at most ${inWords(measured.write.longest)}; timers fire up to ${inWords(measured.stall)} late.`,
    )
  else
    for (const { about, problem, change } of found) await out.text(`${clean(`${about}: ${problem}.`)}\n  ${clean(`To change: ${change}.`)}`)
  return found.length === 0 ? 0 : EXIT.failed
}
