/** Every RESP command without a key, and with a key for other things: nothing is answered that the key does not allow. */
import { describe, expect, test } from 'vitest'
import { VERBS, type Verb } from '../../src/kernel/command.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { scopesIn } from '../../src/server/key-scopes.ts'
import { hashSecret } from '../../src/server/key-secret.ts'
import type { RespCommand } from '../../src/server/resp/command.ts'
import { COMMANDS } from '../../src/server/resp/commands.ts'
import { serve } from '../../src/server/serve.ts'
import { MemoryStore } from '../../src/store/memory.ts'
import { MESSAGES_VERSION } from '../../src/wire/messages.ts'
import { ReplyError } from '../../src/wire/resp/reply-parser.ts'
import { ask, world } from '../support/http-world.ts'
import { type Place, place, Raw } from '../support/resp-place.ts'

/** A server with a lease, an entry and a history under `jobs`, and with keys for everything, for another prefix, and for each single verb. */
/** `passedOn`: with a lease that was transferred to a name, which every key that may acquire it sees. */
async function guarded(passedOn = false) {
  const here = await place()
  const before = await propose(here.lessor, { kind: 'acquire', holder: 'ann', ttl: 60_000, wants: [{ resource: 'jobs/nightly' }] })
  if (before.kind !== 'granted') throw new Error(before.kind)
  await propose(here.lessor, { kind: 'release', lease: before.lease })
  const all = VERBS.filter(verb => verb !== 'admin')
  const keys: Record<string, { verb: Verb; prefix: string }[]> = {
    root: [{ verb: 'admin', prefix: '' }],
    foreign: all.map(verb => ({ verb, prefix: 'elsewhere' })),
    ...Object.fromEntries(all.map(verb => [`only ${verb}`, [{ verb, prefix: 'jobs' }]])),
  }
  for (const [name, allow] of Object.entries(keys)) await propose(here.lessor, { kind: 'key', name, hash: hashSecret(name), allow })
  const { value } = await here.lessor.read({ kind: 'keys' })
  const root = value.find(({ name }) => name === 'root')!.id
  const held = await propose(
    here.lessor,
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
  const given = passedOn ? await passOn(here, root) : 0
  await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
  return { here, lease: held.lease, token: held.tokens[0]!, given }
}

async function passOn(here: Place, root: number): Promise<number> {
  const held = await propose(
    here.lessor,
    { kind: 'acquire', holder: 'ann', ttl: 60_000, wants: [{ resource: 'jobs/passed-on' }] },
    { key: root },
  )
  if (held.kind !== 'granted') throw new Error(held.kind)
  const given = await propose(here.lessor, { kind: 'transfer', lease: held.lease, to: 'ben', stopped: true }, { key: root })
  if (given.kind !== 'done') throw new Error(given.kind)
  return given.id!
}

/** Whether a command is about a lease that was transferred to a name. */
function isForPassedOn({ example }: RespCommand): boolean {
  return example.includes('$given')
}

interface Named {
  readonly lease: number
  readonly token: number
  /** A lease that was transferred to a name. */
  readonly given: number
}

function wordsOf({ example }: RespCommand, { lease, token, given }: Named): string[] {
  const numbers: Readonly<Record<string, number>> = { $lease: lease, $token: token, $given: given }
  return example.map(word => word.replace(/^\$(lease|token|given)$/, found => String(numbers[found])))
}

async function request(here: Place, key: string | undefined, command: RespCommand, words: string[]): Promise<unknown> {
  using raw = new Raw(here.port)
  if (key !== undefined) expect(await raw.ask('AUTH', key)).toBe('OK')
  if (key !== undefined && command.name === 'LEASE.BATCH') await raw.ask('HELLO', 2, 'MESSAGES', MESSAGES_VERSION)
  return await raw.ask(command.name, ...words)
}

const lease = [...COMMANDS.values()].filter(({ name }) => name.startsWith('LEASE.'))

describe('without a key', () => {
  test('every command that needs one is refused with UNAUTHENTICATED, and changes nothing', async () => {
    const world = await guarded()
    await using here = world.here
    const { revision } = await here.lessor.read({ kind: 'summary' })
    for (const command of COMMANDS.values()) {
      const answer = await request(here, undefined, command, wordsOf(command, world))
      if (command.open) continue
      expect(answer, command.name).toBeInstanceOf(ReplyError)
      expect((answer as ReplyError).message, command.name).toMatch(/^UNAUTHENTICATED /)
    }
    expect((await here.lessor.read({ kind: 'summary' })).revision).toBe(revision)
    expect([...COMMANDS.values()].filter(({ open }) => open).map(({ name }) => name)).toEqual(['HELLO', 'AUTH', 'PING', 'QUIT', 'RESET'])
  })

  test('HELLO and wrong keys are refused, and repeated wrong keys end the connection', async () => {
    const world = await guarded()
    await using here = world.here
    using raw = new Raw(here.port)
    expect(((await raw.ask('HELLO', '3')) as Error).message).toMatch(/^UNAUTHENTICATED /)
    expect(((await raw.ask('HELLO', '3', 'AUTH', 'default', 'guess')) as Error).message).toMatch(/^UNAUTHENTICATED /)
    for (let i = 1; i < 16; i++) expect(((await raw.ask('AUTH', `guess-${i}`)) as Error).message).toMatch(/^UNAUTHENTICATED /)
    expect(await raw.next()).toBe('closed')
  })
})

describe('with a key for other names', () => {
  for (const command of lease)
    test(`${command.name} reaches nothing outside the key's scope`, async () => {
      const world = await guarded(isForPassedOn(command))
      await using here = world.here
      const { revision } = await here.lessor.read({ kind: 'summary' })
      const answer = await request(here, 'foreign', command, wordsOf(command, world))
      if (command.name === 'LEASE.BATCH' || command.name === 'LEASE.UNWATCH') return expect(answer).toBe(0)
      // Hidden items are reported as not found: gone, null, or an empty list.
      const described = answer instanceof ReplyError ? answer.message : JSON.stringify(answer)
      if (command.name === 'LEASE.RENEW') expect(answer).toEqual([-1])
      else expect(described).toMatch(/^(FORBIDDEN|GONE|NOT_FOUND) |^null$|^\[\]$/)
      expect(described).not.toMatch(/ann|secret/)
      expect((await here.lessor.read({ kind: 'summary' })).revision).toBe(revision)
    })
})

describe('with a key for a single verb', () => {
  for (const command of lease.filter(({ verb }) => verb !== undefined && verb !== 'admin'))
    test(`${command.name} takes the right to ${command.verb}, and no other`, async () => {
      const world = await guarded(isForPassedOn(command))
      await using here = world.here
      // `acquire` includes keeping what was passed on.
      for (const verb of VERBS.filter(
        other => other !== 'admin' && other !== command.verb && !(isForPassedOn(command) && other === 'acquire'),
      )) {
        const answer = await request(here, `only ${verb}`, command, wordsOf(command, world))
        const described = answer instanceof ReplyError ? answer.message : JSON.stringify(answer)
        expect(described, verb).toMatch(/^(FORBIDDEN|GONE|NOT_FOUND) |^null$|^\[\]$|^\[-1\]$/)
      }
    })
})

describe('with a key that allows it', () => {
  test('every command succeeds', async () => {
    for (const command of lease) {
      const world = await guarded(isForPassedOn(command))
      await using here = world.here
      const answer = await request(here, 'root', command, wordsOf(command, world))
      expect(answer instanceof ReplyError ? answer.message : '', command.name).toBe('')
    }
  })

  test('a revoked key loses its connections, watches and waits at once', async () => {
    const world = await guarded()
    await using here = world.here
    using watcher = new Raw(here.port)
    await watcher.ask('AUTH', 'only watch')
    expect(await watcher.ask('LEASE.WATCH', 'jobs/quiet')).toBeTypeOf('number')
    using waiter = new Raw(here.port)
    using queuer = new Raw(here.port)
    await waiter.ask('AUTH', 'only acquire')
    await queuer.ask('HELLO', 3, 'AUTH', 'default', 'only acquire')
    const waits = waiter.ask('LEASE.ACQUIRE', 'jobs/nightly', 'TTL', 5_000, 'WAIT', 60_000)
    await queuer.ask('LEASE.ACQUIRE', 'jobs/nightly', 'TTL', 5_000, 'QUEUE')
    await expect.poll(() => here.server.guarded.waiting).toBe(2)
    const { value } = await here.lessor.read({ kind: 'keys' })
    for (const revoked of ['only watch', 'only acquire'])
      await propose(here.lessor, { kind: 'unkey', id: value.find(({ name }) => name === revoked)!.id })
    // No event has happened under the watched prefix.
    const result = JSON.stringify(await watcher.next())
    expect(result).toContain('lease.unwatched')
    expect(((await waits) as Error).message).toMatch(/^UNAUTHENTICATED /)
    const withdrawn = (await queuer.next()) as unknown as { items: [string, number, Map<string, string>] }
    expect([withdrawn.items[0], withdrawn.items[2].get('code')]).toEqual(['lease.withdrawn', 'UNAUTHENTICATED'])
    expect((await here.lessor.read({ kind: 'resource', resource: 'jobs/nightly' })).value.queue).toEqual([])
    expect(here.server.guarded.watches + here.server.guarded.waiting).toBe(0)
    expect(((await watcher.ask('LEASE.LIST')) as Error).message).toMatch(/^UNAUTHENTICATED /)
  })
})

describe('counts of all leases', () => {
  const FIGURES = ['leases', 'resources', 'keys', 'nextToken', 'connected_clients', 'appends']
  const named = (info: string) => FIGURES.filter(name => info.includes(`\n${name}:`))

  test('INFO shows them to a key that may read everything, and to other keys only what a client needs', async () => {
    const world = await guarded()
    await using here = world.here
    await propose(here.lessor, { kind: 'key', name: 'monitor', hash: hashSecret('monitor'), allow: [{ verb: 'read', prefix: '' }] })
    await expect.poll(() => here.server.guarded.access.identify('monitor').name).toBe('monitor')
    for (const key of ['foreign', 'only read']) {
      using raw = new Raw(here.port)
      await raw.ask('AUTH', key)
      const info = String(await raw.ask('INFO'))
      expect([named(info), info.includes('redis_version:'), info.includes('loading:0')], key).toEqual([[], true, true])
    }
    for (const key of ['root', 'monitor']) {
      using raw = new Raw(here.port)
      await raw.ask('AUTH', key)
      expect(named(String(await raw.ask('INFO'))), key).toEqual(FIGURES.filter(name => name !== 'appends'))
    }
  })

  test('/metrics and summaries show them to a key that may read everything only; /v1/about answers every key', async () => {
    await using here = await world()
    const keys = {
      none: await here.key('none', []),
      part: await here.key('part', [{ verb: 'read', prefix: 'jobs' }]),
      monitor: await here.key('monitor', scopesIn('read:')),
    }
    const request = async (method: string, path: string, body?: unknown) =>
      Promise.all(Object.values(keys).map(secret => here.ask(method, path, body, { Authorization: `Bearer ${secret}` })))
    expect((await request('GET', '/metrics')).map(({ status }) => status)).toEqual([403, 403, 200])
    const summaries = await request('POST', '/v1/read', { query: { kind: 'summary' } })
    expect(summaries.map(({ json }) => json.value.keys)).toEqual([undefined, undefined, 3])
    expect(summaries.map(({ json }) => json.value.quiet)).toEqual([false, false, false])
    for (const { status, json } of await request('GET', '/v1/about'))
      expect([status, Object.keys(json)]).toEqual([200, ['name', 'version', 'profile', 'keys', 'revision']])
  })
})

test('a server on a non-loopback address refuses every caller when its last key is revoked, and gives the reason', async () => {
  await using lessor = await Replica.open(new MemoryStore())
  const create = async (name: string) => {
    const made = await propose(lessor, { kind: 'key', name, hash: hashSecret(name), allow: [{ verb: 'admin', prefix: '' }] })
    return (made as { id: number }).id
  }
  const id = await create('root')
  await using server = await serve({ lessor, listen: '0.0.0.0:0', behindProxy: true, operator: 'op', http: httpListener() })
  const port = Number(server.addresses[0]!.split(':').at(-1))
  using stayed = new Raw(port)
  expect(await stayed.ask('AUTH', 'root')).toBe('OK')
  await propose(lessor, { kind: 'unkey', id })
  await expect.poll(() => server.guarded.access.hasKeys).toBe(false)
  using raw = new Raw(port)
  for (const words of [['LEASE.LIST'], ['HELLO', '3'], ['LEASE.ACQUIRE', 'a', 'TTL', '1000'], ['LEASE.KEY', 'LIST']])
    expect(((await raw.ask(...words)) as Error).message, words[0]).toMatch(/^UNAUTHENTICATED .*has no keys left/)
  expect(((await stayed.ask('LEASE.LIST')) as Error).message).toMatch(/^UNAUTHENTICATED /)
  const refused = await ask(port, undefined, 'GET', '/v1/resources')
  expect([refused.status, refused.text]).toEqual([401, expect.stringContaining('has no keys left')])
  expect((await ask(port, undefined, 'POST', '/v1/keys', { name: 'mine', allow: [{ verb: 'admin', prefix: '' }] })).status).toBe(401)
  expect((await ask(port, undefined, 'GET', '/v1/resources', undefined, { Authorization: 'Bearer op' })).status).toBe(200)
  await create('next')
  await expect.poll(() => server.guarded.access.hasKeys).toBe(true)
  expect(await raw.ask('AUTH', 'next')).toBe('OK')
  expect(await raw.ask('LEASE.LIST')).toEqual([])
})
