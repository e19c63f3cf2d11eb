/** Transactions of Consul's keys: all or nothing, in the order of their operations, and without locks. */
import { expect, test } from 'vitest'
import { consulFace } from '../../../src/face/consul/face.ts'
import { type FaceWorld, faceWorld } from '../../support/face-world.ts'

const open = () => faceWorld(consulFace())
const base64 = (text: string) => Buffer.from(text).toString('base64')

function transact(here: FaceWorld, ...operations: readonly object[]) {
  return here.ask(
    'PUT',
    '/v1/txn',
    operations.map(KV => ({ KV })),
  )
}

test('writes and reads all keys in one revision, and sees its own writes', async () => {
  await using here = await open()
  const done = await transact(
    here,
    { Verb: 'check-not-exists', Key: 'a' },
    { Verb: 'set', Key: 'a', Value: base64('one'), Flags: 7 },
    { Verb: 'cas', Key: 'b', Value: base64('two'), Index: 0 },
    { Verb: 'get', Key: 'a' },
  )
  expect(done.status).toBe(200)
  const [a, b, got] = done.json.Results.map(({ KV }: { KV: object }) => KV)
  expect(a).toMatchObject({ Key: 'a', Flags: 7, Value: null })
  expect(b.ModifyIndex).toBe(a.ModifyIndex)
  expect(got.Value).toBe(base64('one'))
  expect((await here.ask('GET', '/v1/kv/b')).json).toMatchObject([{ Value: base64('two'), CreateIndex: a.ModifyIndex }])
  const read = await transact(here, { Verb: 'get', Key: 'a' }, { Verb: 'get', Key: 'b' })
  expect(read.json.Results.map(({ KV }: { KV: { Value: string } }) => KV.Value)).toEqual([base64('one'), base64('two')])
})

test('one operation that fails stops all of them, and the answer says which and why', async () => {
  await using here = await open()
  await here.ask('PUT', '/v1/kv/a', 'one')
  const refused = await transact(
    here,
    { Verb: 'set', Key: 'b', Value: base64('two') },
    { Verb: 'cas', Key: 'a', Value: base64('new'), Index: 99 },
    { Verb: 'get', Key: 'missing' },
    { Verb: 'check-not-exists', Key: 'a' },
    { Verb: 'delete-cas', Key: 'a', Index: 99 },
  )
  expect(refused.status).toBe(409)
  expect(refused.json).toEqual({
    Results: null,
    Errors: [
      { OpIndex: 1, What: 'failed to set key "a", index is stale' },
      { OpIndex: 2, What: 'key "missing" doesn\'t exist' },
      { OpIndex: 3, What: 'key "a" exists' },
      { OpIndex: 4, What: 'failed to delete key "a", index is stale' },
    ],
  })
  expect((await here.ask('GET', '/v1/kv/b')).status).toBe(404)
})

test('of many that raise one number each counts once', async () => {
  await using here = await open()
  await here.ask('PUT', '/v1/kv/n', '0')
  const raise = async () => {
    for (;;) {
      const [{ Value, ModifyIndex }] = (await here.ask('GET', '/v1/kv/n')).json
      const next = Number(Buffer.from(Value, 'base64').toString()) + 1
      const { status } = await transact(
        here,
        { Verb: 'cas', Key: 'n', Value: base64(String(next)), Index: ModifyIndex },
        { Verb: 'set', Key: `by/${next}` },
      )
      if (status === 200) return
    }
  }
  await Promise.all(Array.from({ length: 8 }, raise))
  expect((await here.ask('GET', '/v1/kv/n?raw')).text).toBe('8')
  expect((await here.ask('GET', '/v1/kv/by/?keys')).json).toHaveLength(8)
})

test('locks, other kinds, too many operations and malformed ones are refused with what to do, and a lock is left alone', async () => {
  await using here = await open()
  const { ID } = (await here.ask('PUT', '/v1/session/create', { TTL: '10s' })).json
  expect((await here.ask('PUT', `/v1/kv/held?acquire=${ID}`, 'v')).text).toBe('true')
  const locked = await transact(here, { Verb: 'lock', Key: 'k', Session: ID })
  expect([locked.status, locked.text]).toEqual([400, expect.stringMatching(/"lock" is not answered.*acquire=SESSION/)])
  expect((await transact(here, { Verb: 'delete', Key: 'held' })).json.Errors[0].What).toMatch(/was locked: delete it with DELETE/)
  expect((await transact(here, { Verb: 'set', Key: 'held', Value: base64('w') })).status).toBe(200)
  expect((await here.ask('GET', '/v1/kv/held')).json[0]).toMatchObject({ Session: ID, Value: base64('w') })
  for (const [body, status] of [
    [[{ Node: {} }], 400],
    [{}, 400],
    ['no list', 400],
    [[null], 400],
    [[{ KV: { Verb: 'set', Key: '' } }], 400],
    [[{ KV: { Verb: 'set', Key: 'a//b' } }], 400],
    [[{ KV: { Verb: 'set', Key: 'a', Flags: 2 ** 60 } }], 400],
    [[{ KV: { Verb: 'cas', Key: 'a', Index: -1 } }], 400],
    [Array(65).fill({ KV: { Verb: 'get', Key: 'a' } }), 413],
  ] as const)
    expect((await here.ask('PUT', '/v1/txn', body)).status, JSON.stringify(body).slice(0, 60)).toBe(status)
  expect((await here.ask('PUT', '/v1/txn', [])).json).toEqual({ Results: [], Errors: null })
  expect((await here.ask('GET', '/v1/txn')).status).toBe(405)
})
