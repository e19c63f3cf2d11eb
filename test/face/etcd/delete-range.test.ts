/** The deletion of a long range takes several revisions. Its work grows with the number of keys, and not with its square. */
import { expect, test } from 'vitest'
import { etcdFace } from '../../../src/face/etcd/gateway.ts'
import type { FaceLessor } from '../../../src/face/face.ts'
import { type FaceWorld, faceWorld } from '../../support/face-world.ts'

const b64 = (text: string) => Buffer.from(text).toString('base64')
const RANGE = { key: b64('many/'), range_end: b64('many0') }

async function worldWith(keys: number): Promise<FaceWorld> {
  const here = await faceWorld(etcdFace())
  for (let from = 0; from < keys; from += 100) {
    const success = Array.from({ length: 100 }, (_, i) => ({ request_put: { key: b64(`many/${from + i}`), value: b64('v') } }))
    expect(await here.ask('POST', '/v3/kv/txn', { success })).toMatchObject({ status: 200 })
  }
  return here
}

/** The lessor, with `seen` called before each read and each command. */
function observed({ lessor }: FaceWorld, seen: (call: 'read' | 'submit') => void): FaceLessor {
  return new Proxy(lessor as FaceLessor, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target)
      if (typeof value !== 'function') return value
      return (...args: unknown[]) => {
        if (name === 'read' || name === 'submit') seen(name)
        return value.apply(target, args)
      }
    },
  })
}

test.each([500, 2_000])('of %i keys, the range is read four times, however many revisions delete it', async keys => {
  await using here = await worldWith(keys)
  let reads = 0
  const lessor = observed(here, call => {
    if (call === 'read') reads++
  })
  const { json } = await here.ask('POST', '/v3/kv/deleterange', RANGE, { lessor })
  expect(json.deleted).toBe(String(keys))
  expect(reads).toBeLessThanOrEqual(4)
})

test('a key that another client changes meanwhile is deleted, and reported once, as it was when it was deleted', async () => {
  await using here = await worldWith(500)
  let commands = 0
  let change: Promise<unknown> | undefined
  const lessor = observed(here, call => {
    // The change is decided before the third part of the deletion.
    if (call === 'submit' && ++commands === 3) change = here.ask('POST', '/v3/kv/put', { key: b64('many/499'), value: b64('changed') })
  })
  const { json } = await here.ask('POST', '/v3/kv/deleterange', { ...RANGE, prev_kv: true }, { lessor })
  expect(await change).toMatchObject({ status: 200 })
  expect(json.deleted).toBe('500')
  const reported = json.prev_kvs as { readonly key: string; readonly value: string }[]
  expect(new Set(reported.map(({ key }) => key)).size).toBe(500)
  expect((await here.ask('POST', '/v3/kv/range', RANGE)).json).not.toHaveProperty('kvs')
})

test('a range that other clients change without end is given up, and the answer says how much was done', async () => {
  await using here = await worldWith(300)
  let n = 0
  const lessor = observed(here, call => {
    if (call !== 'submit') return
    // Before each part, every key is there again in another revision.
    const success = Array.from({ length: 100 }, (_, i) => ({ request_put: { key: b64(`many/new${n}/${i}`), value: b64('v') } }))
    n++
    void here.ask('POST', '/v3/kv/txn', { success })
  })
  const { status, json } = await here.ask('POST', '/v3/kv/deleterange', RANGE, { lessor })
  expect([status, json.code]).toEqual([503, 14])
})
