/** The table of commands, walked without a key and with one for something else: nothing is answered that was not allowed. */
import { describe, expect, test } from 'vitest'
import { VERBS, type Verb } from '../src/kernel/command.ts'
import type { RespCommand } from '../src/server/resp-command.ts'
import { COMMANDS } from '../src/server/resp-commands.ts'
import { hashOf } from '../src/server/secret.ts'
import { ReplyError } from '../src/wire/resp-reply.ts'
import { type Place, place, Raw } from './resp-place.ts'

/** A server with a lease, an entry and a history under `jobs`, and keys for everything, for another prefix, and for each verb alone. */
async function guarded() {
  const here = await place()
  const propose = here.lessor.propose.bind(here.lessor)
  const before = await propose({ kind: 'acquire', holder: 'ann', ttl: 60_000, wants: [{ resource: 'jobs/nightly' }] })
  if (before.kind !== 'granted') throw new Error(before.kind)
  await propose({ kind: 'release', lease: before.lease })
  const all = VERBS.filter(verb => verb !== 'admin')
  const keys: Record<string, { verb: Verb; prefix: string }[]> = {
    root: [{ verb: 'admin', prefix: '' }],
    foreign: all.map(verb => ({ verb, prefix: 'elsewhere' })),
    ...Object.fromEntries(all.map(verb => [`only ${verb}`, [{ verb, prefix: 'jobs' }]])),
  }
  for (const [name, allow] of Object.entries(keys)) await propose({ kind: 'key', name, hash: hashOf(name), allow })
  const { value } = await here.lessor.read({ kind: 'keys' })
  const root = value.find(({ name }) => name === 'root')!.id
  const held = await propose(
    {
      kind: 'acquire',
      holder: 'ann',
      ttl: 60_000,
      wants: [{ resource: 'jobs/nightly' }],
      entries: [{ key: 'jobs/entry', value: 'secret' }],
    },
    { key: root },
  )
  if (held.kind !== 'granted') throw new Error(held.kind)
  await expect.poll(() => here.server.desk.gate.closed).toBe(true)
  return { here, lease: held.lease, token: held.tokens[0]! }
}

function wordsOf({ example }: RespCommand, { lease, token }: { readonly lease: number; readonly token: number }): string[] {
  return example.map(word => word.replace('$lease', String(lease)).replace('$token', String(token)))
}

async function asked(here: Place, key: string | undefined, command: RespCommand, words: string[]): Promise<unknown> {
  using raw = new Raw(here.port)
  if (key !== undefined) expect(await raw.ask('AUTH', key)).toBe('OK')
  return await raw.ask(command.name, ...words)
}

const lease = [...COMMANDS.values()].filter(({ name }) => name.startsWith('LEASE.'))

describe('without a key', () => {
  test('every command that needs one is UNAUTHENTICATED, and changes nothing', async () => {
    const world = await guarded()
    await using here = world.here
    const { revision } = await here.lessor.read({ kind: 'summary' })
    for (const command of COMMANDS.values()) {
      const answer = await asked(here, undefined, command, wordsOf(command, world))
      if (command.open) continue
      expect(answer, command.name).toBeInstanceOf(ReplyError)
      expect((answer as ReplyError).message, command.name).toMatch(/^UNAUTHENTICATED /)
    }
    expect((await here.lessor.read({ kind: 'summary' })).revision).toBe(revision)
    expect([...COMMANDS.values()].filter(({ open }) => open).map(({ name }) => name)).toEqual(['HELLO', 'AUTH', 'PING', 'QUIT', 'RESET'])
  })

  test('HELLO lets nobody in, wrong keys neither, and guessing ends the connection', async () => {
    const world = await guarded()
    await using here = world.here
    using raw = new Raw(here.port)
    expect(((await raw.ask('HELLO', '3')) as Error).message).toMatch(/^UNAUTHENTICATED /)
    expect(((await raw.ask('HELLO', '3', 'AUTH', 'default', 'guess')) as Error).message).toMatch(/^UNAUTHENTICATED /)
    for (let i = 1; i < 16; i++) expect(((await raw.ask('AUTH', `guess-${i}`)) as Error).message).toMatch(/^UNAUTHENTICATED /)
    expect(await raw.next()).toBe('closed')
  })
})

describe('with a key for something else', () => {
  for (const command of lease)
    test(`${command.name} reaches nothing outside the key's scope`, async () => {
      const world = await guarded()
      await using here = world.here
      const { revision } = await here.lessor.read({ kind: 'summary' })
      const answer = await asked(here, 'foreign', command, wordsOf(command, world))
      if (command.name === 'LEASE.BATCH' || command.name === 'LEASE.UNWATCH') return expect(answer).toBe(0)
      // What is hidden looks as if it were not there: gone, not found, an empty list.
      const shown = answer instanceof ReplyError ? answer.message : JSON.stringify(answer)
      if (command.name === 'LEASE.RENEW') expect(answer).toEqual([-1])
      else expect(shown).toMatch(/^(FORBIDDEN|GONE|NOT_FOUND) |^null$|^\[\]$/)
      expect(shown).not.toMatch(/ann|secret/)
      expect((await here.lessor.read({ kind: 'summary' })).revision).toBe(revision)
    })
})

describe('with a key for one verb alone', () => {
  for (const command of lease.filter(({ verb }) => verb !== undefined && verb !== 'admin'))
    test(`${command.name} takes the right to ${command.verb}, and no other`, async () => {
      const world = await guarded()
      await using here = world.here
      for (const verb of VERBS.filter(other => other !== 'admin' && other !== command.verb)) {
        const answer = await asked(here, `only ${verb}`, command, wordsOf(command, world))
        const shown = answer instanceof ReplyError ? answer.message : JSON.stringify(answer)
        expect(shown, verb).toMatch(/^(FORBIDDEN|GONE|NOT_FOUND) |^null$|^\[\]$|^\[-1\]$/)
      }
    })
})

describe('with the right key', () => {
  test('everything in the table does what it says', async () => {
    for (const command of lease) {
      const world = await guarded()
      await using here = world.here
      const answer = await asked(here, 'root', command, wordsOf(command, world))
      expect(answer instanceof ReplyError ? answer.message : '', command.name).toBe('')
    }
  })

  test('a key that is revoked is out at once: its connections, its watches, its waits', async () => {
    const world = await guarded()
    await using here = world.here
    using watcher = new Raw(here.port)
    await watcher.ask('AUTH', 'only watch')
    expect(await watcher.ask('LEASE.WATCH', 'jobs')).toBeTypeOf('number')
    const { value } = await here.lessor.read({ kind: 'keys' })
    await here.lessor.propose({ kind: 'unkey', id: value.find(({ name }) => name === 'only watch')!.id })
    await here.lessor.propose({ kind: 'acquire', holder: 'eve', ttl: 1_000, wants: [{ resource: 'jobs/new' }] })
    const told = JSON.stringify(await watcher.next())
    expect(told).toContain('lease.unwatched')
    expect(told).not.toContain('eve')
    expect(((await watcher.ask('LEASE.LIST')) as Error).message).toMatch(/^UNAUTHENTICATED /)
  })
})
