/** `leasehold key`: API keys and what they allow. */
import type { Command } from 'commander'
import { LeaseError } from '../../errors.ts'
import { type Scope, VERBS } from '../../kernel/command.ts'
import { scopesIn, scopesInWords } from '../../server/key-scopes.ts'
import { hashSecret, newSecret } from '../../server/key-secret.ts'
import { usageError } from '../exit.ts'
import { addGlobalOptions, invoke } from '../invocation.ts'
import { collect } from '../option-values.ts'
import { change } from './operate.ts'

const HELP = `
acquire    acquire leases; also renew, release and transfer those that the key acquired
renew      renew a lease that was transferred to the key
release    release or transfer such a lease
register   put and delete entries of the key's own leases, including registrations
break      end the holders of a name; needed for every name that they hold. Stealing needs acquire and break
revoke     end leases; needed for every name that they hold and every entry attached to them
admin      all of the above; over everything: also manage keys`

export function key(program: Command): void {
  const group = program.command('key').summary('manage API keys and what they allow (create, ls, revoke)')
  addGlobalOptions(group.command('create'))
    .summary('create a key and print its secret, once')
    .requiredOption('--name <name>', 'a name for people to recognise the key by (required)')
    .requiredOption(
      '--allow <scope>',
      "verbs and a prefix, for example 'acquire,renew,release,read:jobs/' or 'read:,watch:jobs/' (required); may be repeated",
      collect,
    )
    .addHelpText('after', `\nVerbs: ${VERBS.join(' ')}. Without a prefix, a scope covers everything.\n${HELP}`)
    .action(async ({ name, allow }: { name: string; allow: readonly string[] }, self: Command) => {
      const scopes = allow.flatMap(scopesIn)
      await invoke(self, async invocation => {
        const { out, clock, read } = invocation
        const { value: before } = await read({ kind: 'keys' })
        const secret = newSecret(clock)
        const { id, revision } = await change(invocation, { kind: 'key', name, hash: hashSecret(secret), allow: scopes })
        if (out.json) await out.data({ id, name, secret, allow: scopes, revision })
        else await out.text(secret)
        out.note(
          `created key ${id} (${name}). It allows ${scopesInWords(scopes)}. Its secret is shown only now. Clients pass it in LEASEHOLD_API_KEY.`,
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
  addGlobalOptions(group.command('ls'))
    .summary('list the keys; secrets are not stored and cannot be shown')
    .action(async (_: unknown, self: Command) => {
      await invoke(self, async ({ read, out }) => {
        const { value } = await read({ kind: 'keys' })
        if (out.json) {
          for (const { id, name, allow } of value) await out.data({ id, name, allow })
          return
        }
        if (value.length === 0) return out.note('there are no keys: a server on loopback is open to every user of its machine')
        await out.table(
          ['ID', 'NAME', 'ALLOWS'],
          value.map(({ id, name, allow }) => [id, name, allow.map(formatScope).join(' ')]),
        )
      })
    })
  addGlobalOptions(group.command('revoke'))
    .summary('revoke a key; its leases end when their ttl runs out')
    .argument('<key>', 'the id or the name of the key')
    .action(async (which: string, _: unknown, self: Command) => {
      await invoke(self, async invocation => {
        const { value } = await invocation.read({ kind: 'keys' })
        const found = value.filter(({ id, name }) => String(id) === which || name === which)
        if (found.length === 0) throw new LeaseError('NOT_FOUND', `there is no key ${which}`)
        if (found.length > 1)
          throw usageError(`${found.length} keys are called ${which}`, 'Use its id. To see the ids, run: leasehold key ls')
        const [{ id, name }] = found as [(typeof found)[0]]
        const { revision } = await change(invocation, { kind: 'unkey', id })
        if (invocation.out.json) await invocation.out.data({ revoked: id, name, revision })
        else invocation.out.note(`revoked key ${id} (${name})`)
      })
    })
}

function formatScope({ verb, prefix }: Scope): string {
  return prefix === '' ? verb : `${verb}:${prefix}`
}
