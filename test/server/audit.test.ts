/** Which actions are audited, and by which name. */
import { expect, test } from 'vitest'
import { open } from '../../src/connect/connect.ts'
import type { Verb } from '../../src/kernel/command.ts'
import type { Lessor } from '../../src/lessor.ts'
import { Audit } from '../../src/server/audit.ts'
import { auditTo } from '../../src/server/log.ts'
import { type World, world } from '../support/http-world.ts'
import { Raw } from '../support/resp-place.ts'

const bearer = (secret: string) => ({ Authorization: `Bearer ${secret}` })

/** A server with an administrator's key and a holder's key. Returns the holder's lease of `jobs/a`. */
async function guarded() {
  const lines: Record<string, unknown>[] = []
  const log = { debug() {}, info: (facts: object) => void lines.push(facts as Record<string, unknown>), warn() {}, error() {} }
  const here = await world({ audit: auditTo(log) })
  const admin = await here.key('admin', [{ verb: 'admin', prefix: '' }])
  const verbs: Verb[] = ['acquire', 'renew', 'release', 'read']
  const worker = await here.key('worker', [...verbs.map(verb => ({ verb, prefix: '' })), { verb: 'break', prefix: 'jobs' }])
  const lease = await held(here, worker, 'jobs/a')
  lines.length = 0
  return { here, lines, admin, worker, lease }
}

async function held(here: World, secret: string, resource: string): Promise<number> {
  const body = { resources: [resource], holder: 'bob', ttl: '60s' }
  return (await here.ask('POST', '/v1/leases', body, bearer(secret))).json.lease
}

test('an administrator that renews, releases or transfers the lease of another key is audited, with its holder', async () => {
  const { here, lines, admin, lease } = await guarded()
  await using _ = here
  await here.ask('POST', `/v1/leases/${lease}/renew`, {}, bearer(admin))
  await here.ask('POST', '/v1/transfer', { lease, to: 'eve' }, bearer(admin))
  await here.ask('DELETE', `/v1/leases/${lease}`, undefined, bearer(admin))
  expect(lines.map(({ did, on, of, by }) => ({ did, on, of, by }))).toEqual([
    { did: 'renew', on: { leases: [lease] }, of: ['bob'], by: { key: 1, name: 'admin' } },
    expect.objectContaining({ did: 'transfer' }),
    { did: 'release', on: { lease }, of: ['bob'], by: { key: 1, name: 'admin' } },
  ])
})

test('actions on own leases, and on leases that never existed, are not audited', async () => {
  const { here, lines, admin, worker, lease } = await guarded()
  await using _ = here
  const own = await held(here, admin, 'jobs/own')
  for (let i = 0; i < 3; i++) await here.ask('POST', '/v1/leases/renew', { leases: [own, 999] }, bearer(admin))
  await here.ask('DELETE', `/v1/leases/${own}`, undefined, bearer(admin))
  await here.ask('DELETE', '/v1/leases/998', undefined, bearer(admin))
  await here.ask('POST', `/v1/leases/${lease}/renew`, {}, bearer(worker))
  await here.ask('DELETE', `/v1/leases/${lease}`, undefined, bearer(worker))
  expect(lines).toEqual([])
})

test('a request to a holder is audited, and what an administrator attaches to the lease of another key, without its value', async () => {
  const { here, lines, admin, worker, lease } = await guarded()
  await using _ = here
  const key = 'services/api/one/state'
  await here.ask('POST', '/v1/recall', { resource: 'jobs/a', by: 'please' }, bearer(worker))
  await here.ask('PUT', `/v1/entries/${key}`, { lease, value: '{"status":"draining"}' }, bearer(admin))
  expect(lines).toMatchObject([
    { did: 'recall', on: { resource: 'jobs/a', by: 'worker (please)' } },
    { did: 'put', on: { lease, key }, of: ['bob'] },
  ])
  expect(JSON.stringify(lines)).not.toContain('status')
  lines.length = 0
  const own = await held(here, admin, 'jobs/own')
  await here.ask('PUT', '/v1/entries/notes/own', { lease: own, value: 'x' }, bearer(admin))
  expect(lines).toEqual([])
})

test('a steal is audited without its entries, and a move without its password', async () => {
  const { here, lines, admin } = await guarded()
  await using _ = here
  const entries = [{ key: 'notes/n', value: 'private' }]
  const steal = (how: string) => ({ resources: ['jobs/a'], holder: 'thief', ttl: '60s', wait: '1s', steal: how, entries })
  expect((await here.ask('POST', '/v1/leases', steal('force'), bearer(admin))).status).toBe(201)
  expect(lines).toMatchObject([{ did: 'steal', on: { resources: ['jobs/a'], holder: 'thief', how: 'force' }, outcome: 'granted' }])
  expect(JSON.stringify(lines)).not.toContain('private')
  lines.length = 0
  const proposals = [{ command: { kind: 'move' } }, { command: { kind: 'move', to: 'postgres://me:secret@db/x' } }]
  await here.ask('POST', '/v1/propose', { proposals }, bearer(admin))
  expect(lines).toMatchObject([{ did: 'move' }, { did: 'move', on: { to: 'postgres://…@db/x' } }])
})

test('a backup is audited when it starts, on both wires', async () => {
  const { here, lines, admin, worker } = await guarded()
  await using _ = here
  expect((await here.ask('GET', '/v1/backup', undefined, bearer(worker))).status).toBe(403)
  expect(lines).toEqual([])
  expect((await here.ask('GET', '/v1/backup', undefined, bearer(admin))).status).toBe(200)
  await using far = await open(`leasehold://${admin}@127.0.0.1:${here.port}`)
  for await (const _ of far.backup!()) break
  expect(lines).toMatchObject([
    { did: 'backup', by: { name: 'admin' } },
    { did: 'backup', by: { name: 'admin' } },
  ])
})

test('a change of a key names the key, also when it is revoked', async () => {
  const { here, lines, admin } = await guarded()
  await using _ = here
  const keys = (await here.ask('GET', '/v1/keys', undefined, bearer(admin))).json
  const { id } = keys.keys.find(({ name }: { readonly name: string }) => name === 'worker')
  await here.ask('POST', `/v1/keys/${id}/rotate`, {}, bearer(admin))
  await here.ask('DELETE', `/v1/keys/${id}`, undefined, bearer(admin))
  expect(lines).toMatchObject([
    { did: 'rotate', on: { id }, named: 'worker' },
    { did: 'unkey', on: { id }, named: 'worker' },
  ])
})

test('a malformed command is refused, and not audited', async () => {
  const { here, lines, admin } = await guarded()
  await using _ = here
  const proposals = [
    { command: { kind: 'acquire', steal: 'force' } },
    { command: { kind: 'key', name: 'x' } },
    { command: { kind: 'release' } },
  ]
  const { status, json } = await here.ask('POST', '/v1/propose', { proposals }, bearer(admin))
  expect(status).toBe(200)
  expect(json.answers.map(({ outcome }: { outcome: { code: string } }) => outcome.code)).toEqual(['INVALID', 'INVALID', 'INVALID'])
  expect(lines).toEqual([])
})

test('`by` is the name of the key, followed by the name that the caller gave', async () => {
  const { here, admin, worker, lease } = await guarded()
  await using _ = here
  await here.ask('POST', '/v1/break', { resource: 'jobs/a', by: 'root' }, bearer(worker))
  const second = await held(here, worker, 'jobs/b')
  using raw = new Raw(here.port)
  await raw.ask('AUTH', admin)
  expect(await raw.ask('LEASE.REVOKE', second, 'BY', 'root')).not.toBeInstanceOf(Error)
  const third = await held(here, worker, 'jobs/c')
  const proposals = [{ command: { kind: 'revoke', target: { lease: third } } }]
  await here.ask('POST', '/v1/propose', { proposals }, bearer(admin))
  const past = async (name: string) => (await here.lessor.read({ kind: 'history', resource: name })).value.map(({ by }) => by)
  await here.ask('DELETE', `/v1/leases/${lease}`, undefined, bearer(worker))
  for (const one of [second, third]) await here.ask('DELETE', `/v1/leases/${one}`, undefined, bearer(worker))
  expect([await past('jobs/a'), await past('jobs/b'), await past('jobs/c')]).toEqual([['worker (root)'], ['admin (root)'], ['admin']])
})

test('a `by` that is too long is truncated, but not inside a character', async () => {
  const { here } = await guarded()
  await using _ = here
  const name = 'k'.repeat(500)
  const long = await here.key(name, [{ verb: 'break', prefix: '' }])
  const broken = await here.ask('POST', '/v1/break', { resource: 'jobs/a', after: '10s', by: 'ü'.repeat(100) }, bearer(long))
  expect(broken.status).toBe(200)
  const { status } = await here.ask('POST', '/v1/break', { resource: 'jobs/a', by: 'x'.repeat(513) }, bearer(long))
  expect(status, 'as before').toBe(400)
})

test('the owner of each lease is read once, even by an administrator that renews more leases than one key may have by default', async () => {
  let reads = 0
  const lessor = {
    read: async () => {
      reads++
      return { revision: 1, value: { key: 1, holder: 'worker' } }
    },
  } as unknown as Lessor
  const audit = new Audit(lessor, () => {}, new Map())
  const all = Array.from({ length: 300_000 }, (_, i) => i + 1)
  for (let round = 0; round < 2; round++)
    for (let from = 0; from < all.length; from += 1_000)
      await audit.foreignLeases({ kind: 'renew', leases: all.slice(from, from + 1_000) }, 1, true)
  expect(reads).toBe(all.length)
})
