import type { Command } from 'commander'
import { LeaseError } from '../../errors.ts'
import { type Scope, VERBS, type Verb } from '../../kernel/command.ts'
import { hashSecret, newSecret } from '../../server/key-secret.ts'
import { usage } from '../exit.ts'
import { common, invoke } from '../invocation.ts'
import { change } from './operate.ts'

const HELP = `
acquire    also renews, releases and passes on what the key acquired
renew      keeps a lease that was handed to the key by a transfer
release    gives back or passes on such a lease
register   puts and deletes entries of the key's own leases, registrations among them
break      ends whoever holds a name; it takes the verb for all that they hold. A steal takes acquire and break
revoke     ends leases; it takes the verb for all that they hold and for the entries that hang on them
admin      all of this; over everything: keys, too`

export function key(program: Command): void {
  const group = program.command('key').summary('who may do what: create, ls, revoke')
  common(group.command('create'))
    .summary('make a key, and show its secret this once')
    .requiredOption('--name <name>', 'for people')
    .requiredOption('--allow <scope>', "verbs and a prefix, as in 'acquire,renew,release,read:jobs/'; may be repeated", collect)
    .addHelpText('after', `\nVerbs: ${VERBS.join(' ')}. Without a prefix a scope is over everything.\n${HELP}`)
    .action(async ({ name, allow }: { name: string; allow: string[] }, self: Command) => {
      const scopes = allow.flatMap(scopesIn)
      await invoke(self, async here => {
        const { out, clock, read } = here
        const { value: before } = await read({ kind: 'keys' })
        const secret = newSecret(clock)
        const { id, revision } = await change(here, { kind: 'key', name, hash: hashSecret(secret), allow: scopes })
        if (out.json) await out.data({ id, name, secret, allow: scopes, revision })
        else await out.text(secret)
        out.note(`key ${id} (${name}). Its secret is shown only now; callers put it into LEASEHOLD_API_KEY.`, { id })
        if (before.length === 0) out.note('this is the first key: from now on a server answers nobody who has none.')
        const administers = [...before.flatMap(known => known.allow), ...scopes].some(
          ({ verb, prefix }) => verb === 'admin' && prefix === '',
        )
        if (!administers)
          out.note(
            "WARNING: no key allows 'admin' over everything. From now on only a command that opens the store itself can make or revoke keys (leasehold key create --name admin --allow admin --store URL); for a server whose store nobody else can open, nobody can.",
            { administers: false },
          )
      })
    })
  common(group.command('ls'))
    .summary('the keys there are; their secrets are known to nobody')
    .action(async (_: unknown, self: Command) => {
      await invoke(self, async ({ read, out }) => {
        const { value } = await read({ kind: 'keys' })
        if (out.json) {
          for (const { id, name, allow } of value) await out.data({ id, name, allow })
          return
        }
        if (value.length === 0) return out.note('there are no keys: a server on loopback is open to the users of its machine')
        await out.table(
          ['ID', 'NAME', 'ALLOWS'],
          value.map(({ id, name, allow }) => [id, name, allow.map(inWord).join(' ')]),
        )
      })
    })
  common(group.command('revoke'))
    .summary('a key that may do nothing any more; its leases end as their ttl runs')
    .argument('<key>', 'its id or its name')
    .action(async (which: string, _: unknown, self: Command) => {
      await invoke(self, async here => {
        const { value } = await here.read({ kind: 'keys' })
        const found = value.filter(({ id, name }) => String(id) === which || name === which)
        if (found.length === 0) throw new LeaseError('NOT_FOUND', `there is no key ${which}`)
        if (found.length > 1) throw usage(`${found.length} keys are called ${which}`, 'Name it by its id: leasehold key ls')
        const [{ id, name }] = found as [(typeof found)[0]]
        const { revision } = await change(here, { kind: 'unkey', id })
        if (here.out.json) await here.out.data({ revoked: id, name, revision })
        else here.out.note(`key ${id} (${name}) is revoked`)
      })
    })
}

function collect(value: string, before: string[] = []): string[] {
  return [...before, value]
}

/** `acquire,read:jobs/` is two scopes over one prefix. */
export function scopesIn(text: string): Scope[] {
  const at = text.indexOf(':')
  const [verbs, prefix] = at === -1 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)]
  return verbs.split(',').map(word => {
    const verb = word.trim()
    if (!(VERBS as readonly string[]).includes(verb)) throw usage(`there is no verb '${verb}'`, `There are: ${VERBS.join(', ')}.`)
    return { verb: verb as Verb, prefix: prefix.trim() }
  })
}

function inWord({ verb, prefix }: Scope): string {
  return prefix === '' ? verb : `${verb}:${prefix}`
}
