/** Sessions, keys and locks of the Consul face: what is excluded, for how long, and what each interruption leaves. */
import { describe, expect, test } from 'vitest'
import { LeaseError } from '../../../src/errors.ts'
import { consulFace } from '../../../src/face/consul/face.ts'
import type { FaceLessor } from '../../../src/face/face.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { type FaceWorld, faceWorld } from '../../support/face-world.ts'
import { submitting } from '../../support/submitting.ts'

const open = () => faceWorld(consulFace())

async function session(here: FaceWorld, fields: object = {}): Promise<string> {
  const reply = await here.ask('PUT', '/v1/session/create', { TTL: '10s', LockDelay: '5s', ...fields })
  expect(reply.status, reply.text).toBe(200)
  return reply.json.ID
}

async function pair(here: FaceWorld, key: string) {
  const reply = await here.ask('GET', `/v1/kv/${key}`)
  return reply.status === 404 ? undefined : reply.json[0]
}

async function holders(here: FaceWorld, key: string): Promise<readonly string[]> {
  const { value } = await here.lessor.read({ kind: 'resource', resource: `consul/${key}` })
  return value.grants.map(({ status }) => status)
}

const TTL_ADVICE = /needs a TTL/

describe('a lock', () => {
  test('is the resource consul/KEY: the library and a client of Consul exclude each other, and its token is shown', async () => {
    await using here = await open()
    const mine = await session(here, { Name: 'nightly' })
    expect((await here.ask('PUT', `/v1/kv/jobs?acquire=${mine}`, 'v')).text).toBe('true')
    const want = { kind: 'acquire', holder: 'ann', ttl: 5_000, wants: [{ resource: 'consul/jobs' }] } as const
    expect(await propose(here.lessor, want)).toMatchObject({ kind: 'refused', code: 'HELD', facts: { holder: 'nightly (client)' } })
    const { value } = await here.lessor.read({ kind: 'resource', resource: 'consul/jobs' })
    expect(value.grants[0]!.token).toBeGreaterThan(0)
    expect((await here.ask('PUT', `/v1/kv/jobs?release=${mine}`, 'v')).text).toBe('true')
    expect(await propose(here.lessor, want)).toMatchObject({ kind: 'granted' })
    expect((await here.ask('PUT', `/v1/kv/jobs?acquire=${mine}`, 'v')).text).toBe('false')
    expect((await pair(here, 'jobs')).Session).toMatch(/^00000000-0000-0000-0000-/)
    expect((await here.ask('PUT', `/v1/kv/jobs?release=${mine}`, 'v')).text).toBe('false')
    expect((await here.ask('DELETE', '/v1/kv/jobs')).text).toBe('true')
    expect(await holders(here, 'jobs')).toEqual(['live'])
    const shown = await pair(here, 'jobs')
    expect(Buffer.from(shown.Value, 'base64').toString()).toBe('leasehold:ann')
  })

  test('of a session that lapsed stays taken for the lock-delay, and no longer', async () => {
    await using here = await open()
    const [mine, theirs] = [await session(here), await session(here, { TTL: '60s' })]
    await here.ask('PUT', `/v1/kv/jobs?acquire=${mine}`, 'v')
    await here.clock.advance(9_990)
    expect((await pair(here, 'jobs')).Session).toBe(mine)
    await here.clock.advance(20)
    expect((await pair(here, 'jobs')).Session).toBe(undefined)
    expect((await here.ask('PUT', `/v1/session/renew/${mine}`)).status).toBe(404)
    expect((await here.ask('PUT', `/v1/kv/jobs?acquire=${theirs}`, 'w')).text).toBe('false')
    await here.clock.advance(4_960)
    expect((await here.ask('PUT', `/v1/kv/jobs?acquire=${theirs}`, 'w')).text).toBe('false')
    await here.clock.advance(1_000)
    expect((await here.ask('PUT', `/v1/kv/jobs?acquire=${theirs}`, 'w')).text).toBe('true')
    expect((await pair(here, 'jobs')).LockIndex).toBe(2)
  })

  test('lives as long as its session is renewed, also with a ttl longer than a first term', async () => {
    await using here = await open()
    const mine = await session(here, { TTL: '60s' })
    await here.ask('PUT', `/v1/kv/jobs?acquire=${mine}`, 'v')
    for (let i = 0; i < 5; i++) {
      await here.clock.advance(50_000)
      expect((await here.ask('PUT', `/v1/session/renew/${mine}`)).status).toBe(200)
    }
    expect((await pair(here, 'jobs')).Session).toBe(mine)
    expect(await holders(here, 'jobs')).toEqual(['live'])
  })

  test('of a session that is destroyed is free at once without a lock-delay, and otherwise when its term is over', async () => {
    await using here = await open()
    for (const [delay, free] of [
      ['0s', true],
      ['5s', false],
    ] as const) {
      const [mine, theirs] = [await session(here, { LockDelay: delay }), await session(here)]
      const key = `jobs-${delay}`
      await here.ask('PUT', `/v1/kv/${key}?acquire=${mine}`, 'v')
      await here.ask('PUT', `/v1/session/destroy/${mine}`)
      expect((await pair(here, key)).Session).toBe(undefined)
      expect((await here.ask('PUT', `/v1/kv/${key}?acquire=${theirs}`, 'w')).text, delay).toBe(String(free))
    }
  })

  test('is deleted with its session or kept, as the session says', async () => {
    await using here = await open()
    for (const behavior of ['delete', 'release']) {
      const mine = await session(here, { Behavior: behavior })
      await here.ask('PUT', `/v1/kv/${behavior}?acquire=${mine}`, 'v')
      await here.ask('PUT', `/v1/kv/${behavior}-given-back?acquire=${mine}`, 'v')
      await here.ask('PUT', `/v1/kv/${behavior}-given-back?release=${mine}`, 'w')
      await here.clock.advance(60_000)
      expect((await pair(here, behavior)) === undefined, behavior).toBe(behavior === 'delete')
      expect(Buffer.from((await pair(here, `${behavior}-given-back`)).Value, 'base64').toString()).toBe('w')
    }
  })

  test('is ended by deleting its key, and not by writing it', async () => {
    await using here = await open()
    const mine = await session(here)
    await here.ask('PUT', `/v1/kv/jobs?acquire=${mine}`, 'v')
    await here.ask('PUT', '/v1/kv/jobs', 'other')
    expect((await pair(here, 'jobs')).Session).toBe(mine)
    await here.ask('DELETE', '/v1/kv/jobs')
    expect(await holders(here, 'jobs')).toEqual([])
    await here.ask('PUT', `/v1/kv/a/b?acquire=${mine}`, 'v')
    await here.ask('DELETE', '/v1/kv/a?recurse')
    expect([await holders(here, 'a/b'), await pair(here, 'a/b')]).toEqual([[], undefined])
  })

  test('is refused to a session that is unknown, of another kind or without a ttl', async () => {
    await using here = await open()
    expect((await here.ask('PUT', '/v1/kv/k?acquire=adf4238a-882b-9ddc-4a9d-5b6758e4159e', 'v')).status).toBe(500)
    expect((await here.ask('PUT', '/v1/kv/k?acquire=../x', 'v')).text).toMatch(/invalid session/)
    expect((await here.ask('PUT', '/v1/session/create', {})).text).toMatch(TTL_ADVICE)
    expect((await here.ask('PUT', '/v1/session/create', { TTL: '9s' })).text).toMatch(/must be between/)
    expect((await here.ask('PUT', '/v1/session/create', { TTL: '10s', Behavior: 'burn' })).status).toBe(400)
    expect((await here.ask('PUT', '/v1/session/create', '{"TTL":')).text).toMatch(/Request decode failed/)
    expect((await here.ask('PUT', '/v1/kv/.session/x', 'v')).status).toBe(400)
    expect((await here.ask('PUT', '/v1/kv/a//b', 'v')).status).toBe(400)
    expect((await here.ask('PUT', '/v1/kv/big', 'x'.repeat(20_000))).status).toBe(413)
    expect((await here.ask('GET', '/v1/kv/x?dc=dc2')).status).toBe(500)
    expect((await here.ask('GET', '/v1/health/service/web?filter=a')).status).toBe(400)
    expect((await here.ask('GET', '/v1/acl/tokens')).status).toBe(404)
  })
})

/** Fails at the n-th proposal: before it is carried out, or after, when the answer is lost. */
function failing(lessor: FaceLessor, at: number, when: 'before' | 'after'): { readonly lessor: FaceLessor; readonly count: () => number } {
  let proposals = 0
  return {
    count: () => proposals,
    lessor: {
      read: (query, options) => lessor.read(query, options),
      watch: (prefix, options) => lessor.watch(prefix, options),
      submit: submitting(async (command, options) => {
        if (++proposals !== at) return propose(lessor, command, options)
        if (when === 'after') await propose(lessor, command, options)
        throw new LeaseError(when === 'before' ? 'UNAVAILABLE' : 'UNKNOWN', 'the server was killed')
      }),
    },
  }
}

/** Something happens before the first proposal. */
function before(lessor: FaceLessor, happens: () => Promise<unknown>): FaceLessor {
  let proposals = 0
  return {
    read: (query, options) => lessor.read(query, options),
    watch: (prefix, options) => lessor.watch(prefix, options),
    submit: submitting(async (command, options) => {
      if (++proposals === 1) await happens()
      return propose(lessor, command, options)
    }),
  }
}

describe('one append', () => {
  test.each(['release', 'delete'])('is enough to acquire a key, and for its release, with the behavior %s and any ttl', async behavior => {
    await using here = await open()
    const mine = await session(here, { Behavior: behavior, TTL: '600s', LockDelay: '60s' })
    for (const value of ['v', 'w']) {
      const counted = failing(here.lessor, 0, 'before')
      expect((await here.ask('PUT', `/v1/kv/jobs?acquire=${mine}`, value, { lessor: counted.lessor })).text).toBe('true')
      const { value: there } = await here.lessor.read({ kind: 'resource', resource: 'consul/jobs' })
      expect([counted.count(), there.grants[0]!.remaining]).toEqual([1, 660_000])
      expect((await here.ask('PUT', `/v1/kv/jobs?release=${mine}`, `${value} again`, { lessor: counted.lessor })).text).toBe('true')
      expect([counted.count(), await holders(here, 'jobs')]).toEqual([2, []])
    }
    expect(await pair(here, 'jobs')).toMatchObject({ LockIndex: 2, Value: Buffer.from('w again').toString('base64') })
  })

  test('takes a key that was written meanwhile with its next try, and the count of its locks rises by one', async () => {
    await using here = await open()
    const mine = await session(here)
    await here.ask('PUT', '/v1/kv/jobs?flags=7', 'old')
    const slow = () => before(here.lessor, () => here.ask('PUT', '/v1/kv/jobs', 'between'))
    expect((await here.ask('PUT', `/v1/kv/jobs?acquire=${mine}&flags=8`, 'v', { lessor: slow() })).text).toBe('true')
    const held = await pair(here, 'jobs')
    expect(held).toMatchObject({ Session: mine, LockIndex: 1, Flags: 8, Value: Buffer.from('v').toString('base64') })
    expect((await here.ask('PUT', `/v1/kv/jobs?release=${mine}`, 'w', { lessor: slow() })).text).toBe('true')
    const free = await pair(here, 'jobs')
    expect(free).toMatchObject({ LockIndex: 1, CreateIndex: held.CreateIndex, Value: Buffer.from('w').toString('base64') })
    expect(free.ModifyIndex).toBeGreaterThan(held.ModifyIndex)
    expect(free.Session).toBe(undefined)
  })
})

describe('an interruption', () => {
  const SETTINGS = ['release', 'delete'].flatMap(behavior => ['10s', '60s'].map(ttl => ({ Behavior: behavior, TTL: ttl })))

  test.each(SETTINGS)(
    'between the steps of an acquire leaves the key held by its session or free, and the same request completes it (%o)',
    async fields => {
      for (let at = 1; ; at++) {
        let reached = 0
        for (const when of ['before', 'after'] as const) {
          await using here = await open()
          const [mine, theirs] = [await session(here, fields), await session(here, fields)]
          const broken = failing(here.lessor, at, when)
          const reply = await here.ask('PUT', `/v1/kv/jobs?acquire=${mine}`, 'v', { lessor: broken.lessor })
          reached = Math.max(reached, broken.count())
          if (broken.count() < at) continue
          expect(reply.status).toBe(500)
          const shown = (await pair(here, 'jobs'))?.Session
          expect([undefined, mine]).toContain(shown)
          if ((await holders(here, 'jobs')).length > 0) {
            expect((await here.ask('PUT', `/v1/kv/jobs?acquire=${theirs}`, 'w')).text).toBe('false')
          } else expect(shown).toBe(undefined)
          expect((await here.ask('PUT', `/v1/kv/jobs?acquire=${mine}`, 'v')).text).toBe('true')
          expect(await pair(here, 'jobs')).toMatchObject({ Session: mine, LockIndex: 1, Value: Buffer.from('v').toString('base64') })
          expect(await holders(here, 'jobs')).toEqual(['live'])
          expect((await here.ask('PUT', `/v1/kv/jobs?release=${mine}`, 'v')).text).toBe('true')
          expect((await here.ask('PUT', `/v1/kv/jobs?acquire=${theirs}`, 'w')).text).toBe('true')
        }
        if (reached < at) break
      }
    },
  )

  test.each(SETTINGS)('between the steps of a release leaves the key held or free, and nothing else (%o)', async fields => {
    for (let at = 1; ; at++) {
      let reached = 0
      for (const when of ['before', 'after'] as const) {
        await using here = await open()
        const [mine, theirs] = [await session(here, fields), await session(here, fields)]
        await here.ask('PUT', `/v1/kv/jobs?acquire=${mine}`, 'v')
        const broken = failing(here.lessor, at, when)
        await here.ask('PUT', `/v1/kv/jobs?release=${mine}`, 'w', { lessor: broken.lessor })
        reached = Math.max(reached, broken.count())
        if (broken.count() < at) continue
        // What is shown is true: a key without a session can be acquired.
        const shown = (await pair(here, 'jobs'))?.Session
        expect((await here.ask('PUT', `/v1/kv/jobs?acquire=${theirs}`, 'x')).text).toBe(String(shown === undefined))
        if (shown === undefined) continue
        expect((await here.ask('PUT', `/v1/kv/jobs?release=${mine}`, 'w')).text).toBe('true')
        expect(Buffer.from((await pair(here, 'jobs')).Value, 'base64').toString()).toBe('w')
        expect((await here.ask('PUT', `/v1/kv/jobs?acquire=${theirs}`, 'x')).text).toBe('true')
      }
      if (reached < at) break
    }
  })

  test('of a client that comes back after its session ended cannot write over its successor', async () => {
    await using here = await open()
    const mine = await session(here, { LockDelay: '0s' })
    const theirs = await session(here)
    // The session ends, and another one acquires the key, between what the first reads and what it asks for.
    const slow = before(here.lessor, async () => {
      await here.ask('PUT', `/v1/session/destroy/${mine}`)
      expect((await here.ask('PUT', `/v1/kv/jobs?acquire=${theirs}`, 'theirs')).text).toBe('true')
    })
    expect(await here.ask('PUT', `/v1/kv/jobs?acquire=${mine}`, 'mine', { lessor: slow })).toMatchObject({ status: 500 })
    expect(await pair(here, 'jobs')).toMatchObject({ Session: theirs, Value: Buffer.from('theirs').toString('base64') })
  })
})

describe('a blocking query', () => {
  test('is answered when its key changes, and not when another does', async () => {
    await using here = await open()
    await here.ask('PUT', '/v1/kv/a', '1')
    const index = (await here.ask('GET', '/v1/kv/a')).headers['X-Consul-Index']
    let answered = false
    const waiting = here.ask('GET', `/v1/kv/a?index=${index}&wait=60s`).then(reply => {
      answered = true
      return reply
    })
    await here.ask('PUT', '/v1/kv/b', '1')
    await here.ask('PUT', '/v1/kv/a/c', '1')
    expect(answered).toBe(false)
    await here.ask('PUT', '/v1/kv/a', '2')
    expect((await waiting).json[0].Value).toBe(Buffer.from('2').toString('base64'))
  })

  test('ends after its time, after ten minutes at most, when its client leaves, and at once with an index from elsewhere', async () => {
    await using here = await open()
    await here.ask('PUT', '/v1/kv/a', '1')
    const index = (await here.ask('GET', '/v1/kv/a')).headers['X-Consul-Index']
    const brief = here.ask('GET', `/v1/kv/a?index=${index}&wait=1s`)
    const long = here.ask('GET', `/v1/kv/a?index=${index}&wait=10h`)
    const gone = new AbortController()
    const left = here.ask('GET', `/v1/kv/a?index=${index}`, undefined, { signal: gone.signal })
    await new Promise(resolve => setImmediate(resolve))
    gone.abort()
    await left.catch(() => {})
    await here.clock.advance(1_000)
    expect((await brief).status).toBe(200)
    await here.clock.advance(600_000)
    expect((await long).status).toBe(200)
    expect((await here.ask('GET', '/v1/kv/a?index=99999999')).status).toBe(200)
    expect((await here.ask('GET', '/v1/kv/a?index=-1')).status).toBe(400)
    expect((await here.ask('GET', '/v1/kv/a?index=1&wait=soon')).status).toBe(400)
  })
})
