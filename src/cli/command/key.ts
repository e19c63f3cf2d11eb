/** `leasehold key`: API keys and what they allow. */
import type { Command } from 'commander'
import { inUtc } from '../../clock.ts'
import { inWords, parseDuration } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import { type KeyBounds, type KeyLimits, type Scope, VERBS } from '../../kernel/command.ts'
import { keyLimitFields } from '../../kernel/command-table.ts'
import type { ApiKeyView } from '../../lessor/key-view.ts'
import { keyAnswer } from '../../server/key-answer.ts'
import { scopesIn, scopesInWords } from '../../server/key-scopes.ts'
import { hashSecret, newSecret } from '../../server/key-secret.ts'
import { usageError } from '../exit.ts'
import { addGlobalOptions, type Invocation, invoke } from '../invocation.ts'
import { type BoundFlags, boundsOf, expiryOf, limitsIn } from '../key-fields.ts'
import { importKeys } from '../key-import.ts'
import { collect } from '../option-values.ts'
import { secretIn } from '../secret-file.ts'
import { change } from './operate.ts'

const HELP = `
acquire    acquire leases; also renew, release and transfer those that the key acquired
renew      renew a lease that was transferred to the key
release    release or transfer such a lease
register   put and delete entries of the key's own leases, including registrations
break      end the holders of a name; needed for every name that they hold. Stealing needs acquire and break
revoke     end leases; needed for every name that they hold and every entry attached to them
admin      all of the above; over everything: also manage keys`

const LIMITS_HELP = `
leases       leases, waiting or not
waiters      leases that wait
entries      entries, attached to leases or not
bytes        the bytes of their keys and values
connections  open connections, on each server
requests     requests in a second, on each server; renewals and releases are not counted
burst        requests that may come at once; as many as in a second when left out`

interface CreateOptions extends BoundFlags {
  readonly name: string
  readonly allow: readonly string[]
  readonly group?: string
  readonly limits?: readonly string[]
  readonly expires?: string
  readonly secretFile?: string
}

export function key(program: Command): void {
  const group = program
    .command('key')
    .summary('manage API keys, what they allow and their limits (create, import, ls, limit, rotate, revoke)')
  addGlobalOptions(group.command('create'))
    .summary('create a key and print its secret, once')
    .requiredOption('--name <name>', 'a name for people to recognise the key by (required)')
    .requiredOption(
      '--allow <scope>',
      "verbs and a prefix, for example 'acquire,renew,release,read:jobs/' or 'read:,watch:jobs/' (required); may be repeated",
      collect,
    )
    .option('--accounts <names>', 'accounts of pools that it may use, the first where a request names none; NAME* is a beginning', collect)
    .option('--holders <names>', 'holder names that it may use; NAME* is a beginning', collect)
    .option('--priority <range>', 'priorities that it may use, for example 0..10 or --priority=-10..-1')
    .option('--no-members', 'it may not name members of a pool, only ask the pool for some')
    .option('--group <group>', 'put the key into a group of keys, which share the limits of the group')
    .option('--limits <limits>', 'for example leases=100,waiters=10 (see below); may be repeated', collect)
    .option('--expires <time>', 'a duration from now, for example 90d, or a time; the wall clocks of the servers decide')
    .option('--secret-file <file>', 'take the secret from this file, or write a new one to it if it does not exist; it is not printed')
    .addHelpText(
      'after',
      `\nVerbs: ${VERBS.join(' ')}. Without a prefix, a scope covers everything.\n${HELP}\n\nLimits (what is left out is not limited):\n${LIMITS_HELP}`,
    )
    .action(async (options: CreateOptions, self: Command) => {
      const { name } = options
      const scopes = options.allow.flatMap(scopesIn)
      const bounds = boundsOf(options)
      const { limits } = options
      const limited = { ...(options.group !== undefined && { group: options.group }), ...(limits && { limits: limitsIn(limits) }) }
      await invoke(self, async invocation => {
        const { out, clock, read } = invocation
        const expiry = expiryOf(options, clock)
        const { value: before } = await read({ kind: 'keys' })
        const { secretFile } = options
        const secret = secretFile === undefined ? newSecret(clock) : secretIn(secretFile, clock)
        const more = { ...bounds, ...limited, ...expiry }
        const { id, revision } = await change(invocation, { kind: 'key', name, hash: hashSecret(secret), allow: scopes, ...more })
        const shown = secretFile === undefined ? { secret } : { secretFile }
        if (out.json) await out.data({ id, name, ...shown, allow: scopes, ...shownExpiry(more), revision })
        else if (secretFile === undefined) await out.text(secret)
        const where = secretFile === undefined ? 'Its secret is shown only now.' : `Its secret is in ${secretFile}.`
        out.note(
          `created key ${id} (${name}). It allows ${scopesInWords(scopes)}.${boundsInWords(more)} ${where} Clients pass it in LEASEHOLD_API_KEY.`,
          { id },
        )
        if (before.length === 0) out.note('this is the first key: from now on, servers require a key from every client.')
        const administers = [...before.flatMap(known => known.allow), ...scopes].some(
          ({ verb, prefix }) => verb === 'admin' && prefix === '',
        )
        if (!administers)
          out.note(
            "WARNING: no key allows 'admin' over everything. From now on, only a command that opens the store directly can create or revoke keys: leasehold key create --name admin --allow admin --store URL. If only the server can open the store, nothing can.",
            { administers: false },
          )
      })
    })
  importKeys(group)
  addGlobalOptions(group.command('ls'))
    .summary('list the keys, their limits and what they have; secrets are not stored and cannot be shown')
    .action(async (_: unknown, self: Command) => {
      await invoke(self, async ({ read, out, clock }) => {
        const { value } = await read({ kind: 'keys' })
        if (out.json) {
          for (const view of value) await out.data({ ...keyAnswer(view) })
          return
        }
        if (value.length === 0) return out.note('there are no keys: a server on loopback is open to every user of its machine')
        await out.table(
          ['ID', 'NAME', 'ALLOWS', 'BOUND TO', 'HAS', 'GROUP', 'EXPIRES'],
          value.map(view => [
            view.id,
            view.name,
            view.allow.map(formatScope).join(' '),
            boundsInWords({ ...view, expires: undefined, limits: undefined, group: undefined }).trim() || '-',
            useInWords(view.use, view.limits) || '-',
            view.group === undefined ? '-' : `${view.group} ${useInWords(view.groupUse, view.groupLimits)}`.trim(),
            expiryInWords(view, clock.wall()),
          ]),
        )
      })
    })
  addGlobalOptions(group.command('limit'))
    .summary('set the limits of a key, or of all keys of a group together; they end nothing')
    .argument('[key]', 'the id or the name of the key')
    .option('--group <group>', 'the limits of this group of keys instead')
    .option('--limits <limits>', 'for example leases=100,waiters=10, in place of all present limits; may be repeated', collect)
    .option('--none', 'lift all limits')
    .addHelpText('after', `\nLimits (what is left out is not limited):\n${LIMITS_HELP}`)
    .action(async (which: string | undefined, options: LimitOptions, self: Command) => {
      const { group: name, limits: given, none = false } = options
      if ((which === undefined) === (name === undefined))
        throw usageError('key limit takes exactly one target: a key, or --group GROUP', 'Run: leasehold help key limit')
      if ((given === undefined) === !none)
        throw usageError('key limit takes either --limits or --none', 'Write, for example: --limits leases=100,waiters=10')
      const limits = given === undefined ? {} : { limits: limitsIn(given) }
      await invoke(self, async invocation => {
        const found = which === undefined ? undefined : await findKey(invocation, which)
        const target = found === undefined ? { group: name! } : { id: found.id }
        const { revision } = await change(invocation, { kind: 'limit', ...target, ...limits })
        const about = found === undefined ? `the keys of the group ${name} together` : `key ${found.id} (${found.name})`
        if (invocation.out.json) await invocation.out.data({ ...target, ...limits, revision })
        else invocation.out.note(`${about}: ${limitsInWords(limits.limits) || 'no limits'}`)
      })
    })
  addGlobalOptions(group.command('rotate'))
    .summary('give a key a new secret and print it, once; its leases stay')
    .argument('<key>', 'the id or the name of the key')
    .option('--overlap <duration>', 'how long the former secret stays valid; left out, it ends now')
    .option('--expires <time>', 'a new time of expiry: a duration from now, for example 90d, or a time')
    .action(async (which: string, options: { overlap?: string; expires?: string }, self: Command) => {
      const overlap = options.overlap === undefined ? 0 : parseDuration(options.overlap, '--overlap')
      await invoke(self, async invocation => {
        const { out, clock } = invocation
        const { id, name } = await findKey(invocation, which)
        const more = { ...(overlap > 0 && { overlap }), ...expiryOf(options, clock) }
        const secret = newSecret(clock)
        const { revision } = await change(invocation, { kind: 'rotate', id, hash: hashSecret(secret), ...more })
        if (out.json) await out.data({ id, name, secret, ...shownExpiry(more), revision })
        else await out.text(secret)
        const former = overlap === 0 ? 'Every former secret has ended.' : `The former secret is valid for another ${inWords(overlap)}.`
        out.note(`rotated key ${id} (${name}). ${former} Its leases stay. The new secret is shown only now.`, { id })
      })
    })
  addGlobalOptions(group.command('revoke'))
    .summary('revoke a key; its leases end when their ttl runs out')
    .argument('<key>', 'the id or the name of the key')
    .action(async (which: string, _: unknown, self: Command) => {
      await invoke(self, async invocation => {
        const { id, name } = await findKey(invocation, which)
        const { revision } = await change(invocation, { kind: 'unkey', id })
        if (invocation.out.json) await invocation.out.data({ revoked: id, name, revision })
        else invocation.out.note(`revoked key ${id} (${name})`)
      })
    })
}

interface LimitOptions {
  readonly group?: string
  readonly limits?: readonly string[]
  readonly none?: boolean
}

async function findKey({ read }: Invocation, which: string): Promise<ApiKeyView> {
  const { value } = await read({ kind: 'keys' })
  const found = value.filter(({ id, name }) => String(id) === which || name === which)
  if (found.length === 0) throw new LeaseError('NOT_FOUND', `there is no key ${which}`)
  if (found.length > 1) throw usageError(`${found.length} keys are called ${which}`, 'Use its id. To see the ids, run: leasehold key ls')
  return found[0]!
}

function shownExpiry<T extends { readonly expires?: number }>({ expires, ...rest }: T): object {
  return { ...rest, ...(expires !== undefined && { expires: inUtc(expires) }) }
}

function boundsInWords({ accounts, holders, priority, noMembers, group, limits, expires }: BoundsShown): string {
  return [
    accounts === undefined ? '' : ` accounts ${accounts.join(', ')};`,
    holders === undefined ? '' : ` holders ${holders.join(', ')};`,
    priority === undefined ? '' : ` priorities ${priority.low} to ${priority.high};`,
    noMembers === true ? ' no members by name;' : '',
    group === undefined ? '' : ` group ${group};`,
    limits === undefined ? '' : ` at most ${limitsInWords(limits)};`,
    expires === undefined ? '' : ` until ${inUtc(expires)};`,
  ]
    .join('')
    .replace(/;$/, '.')
}

type BoundsShown = KeyBounds & {
  readonly group?: string | undefined
  readonly limits?: KeyLimits | undefined
  readonly expires?: number | undefined
}

function limitsInWords(limits: KeyLimits = {}): string {
  return Object.entries(limits)
    .map(([name, limit]) => `${limit} ${name}`)
    .join(', ')
}

/** Shows what there is, of how much: `3/100 leases`. Limits that servers check are shown alone. */
function useInWords(use: ApiKeyView['groupUse'], limits: KeyLimits = {}): string {
  const has: Readonly<Record<string, number>> = { ...use }
  return Object.keys(keyLimitFields)
    .flatMap(name => {
      const limit = limits[name as keyof KeyLimits]
      const used = has[name]
      if (limit === undefined) return used === undefined || used === 0 ? [] : `${used} ${name}`
      return used === undefined ? `≤${limit} ${name}` : `${used}/${limit} ${name}`
    })
    .join(', ')
}

function expiryInWords({ expires, former }: ApiKeyView, now: number): string {
  const end = expires === undefined ? '-' : `${inUtc(expires)}${expires <= now ? ' (expired)' : ''}`
  return former === undefined || former.until <= now ? end : `${end} (two secrets until ${inUtc(former.until)})`
}

function formatScope({ verb, prefix }: Scope): string {
  return prefix === '' ? verb : `${verb}:${prefix}`
}
