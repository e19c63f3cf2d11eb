/** The Redis face: what it answers, what it refuses and with which error, and that nothing else is disturbed. */
import { createHash } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { systemClock } from '../../../src/clock.ts'
import type { FaceCaller } from '../../../src/face/face.ts'
import { SAME_NAMES } from '../../../src/face/face.ts'
import { redisFace } from '../../../src/face/redis/commands.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { hashSecret } from '../../../src/server/key-secret.ts'
import { random } from '../../support/kernel/stream.ts'
import { command, place, Raw } from '../../support/resp-place.ts'

const open = () => place({ faces: [redisFace()] })
const RELEASE = 'if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end'

async function said(raw: Raw, ...words: readonly (string | number)[]): Promise<unknown> {
  const reply = await raw.ask(...words)
  return reply instanceof Error ? reply.message : reply
}

describe('without the face', () => {
  test('a client of Redis is told what to use, and our own commands are as before', async () => {
    await using here = await place()
    using raw = new Raw(here.port)
    expect(await said(raw, 'SET', 'k', 'v', 'NX', 'PX', 1_000)).toMatch(
      /^ERR unknown command 'SET': this is Leasehold\. .*LEASE\.ACQUIRE.*--face redis/,
    )
    expect(await said(raw, 'FLUSHALL')).toBe("ERR unknown command 'FLUSHALL'")
  })
})

describe('a lock', () => {
  test('is the resource redis/KEY: the library and a client of Redis exclude each other, and its token is shown', async () => {
    await using here = await open()
    using raw = new Raw(here.port)
    expect(await said(raw, 'SET', 'jobs/nightly', 'mine', 'NX', 'PX', 5_000)).toBe('OK')
    const want = { kind: 'acquire', holder: 'ann', ttl: 5_000, wants: [{ resource: 'redis/jobs/nightly' }] } as const
    expect(await propose(here.lessor, want)).toMatchObject({ kind: 'refused', code: 'HELD' })
    expect(JSON.stringify(await said(raw, 'LEASE.SHOW', 'redis/jobs/nightly'))).toMatch(/token/)
    expect(await said(raw, 'DEL', 'jobs/nightly')).toBe(1)
    expect(await propose(here.lessor, want)).toMatchObject({ kind: 'granted' })
    expect(await said(raw, 'SET', 'jobs/nightly', 'mine', 'NX', 'PX', 5_000)).toBe(null)
    expect(await said(raw, 'GET', 'jobs/nightly')).toBe('leasehold:ann')
    expect(await said(raw, 'EXISTS', 'jobs/nightly')).toBe(1)
    expect(await said(raw, 'DEL', 'jobs/nightly')).toMatch(/held by ann, not through Redis/)
    expect(await said(raw, 'PEXPIRE', 'jobs/nightly', 100)).toMatch(/held by ann, not through Redis/)
    expect(await said(raw, 'EVAL', RELEASE, 1, 'jobs/nightly', 'leasehold:ann')).toMatch(/held by ann, not through Redis/)
  })

  test('that an operator revoked is not granted to another before its term is over', async () => {
    await using here = await open()
    using raw = new Raw(here.port)
    await raw.ask('SET', 'k', 'v', 'NX', 'PX', 60_000)
    await propose(here.lessor, { kind: 'revoke', target: { prefix: 'redis/k' } })
    expect(await said(raw, 'SET', 'k', 'w', 'NX', 'PX', 5_000)).toBe(null)
    expect(await said(raw, 'EXISTS', 'k')).toBe(1)
    expect(await said(raw, 'EVAL', RELEASE, 1, 'k', 'v')).toBe(0)
  })

  test('is held for its whole term, not only for the first 30 s', async () => {
    await using here = await open()
    using raw = new Raw(here.port)
    await raw.ask('SET', 'k', 'v', 'NX', 'EX', 120)
    expect(await said(raw, 'TTL', 'k')).toBeGreaterThan(100)
  })

  test('is not kept for ever, changed, or extended beyond what policies allow', async () => {
    await using here = await open()
    using raw = new Raw(here.port)
    expect(await said(raw, 'SET', 'k', 'v', 'NX')).toMatch(/needs a term/)
    expect(await said(raw, 'SET', 'k', 'v', 'PX', 1_000)).toMatch(/use SET key value NX PX ms/)
    expect(await said(raw, 'SET', 'k', 'v', 'NX', 'KEEPTTL')).toMatch(/KEEPTTL is not answered/)
    expect(await said(raw, 'SET', 'k', 'v', 'NX', 'PX', 'soon')).toMatch(/not an integer/)
    expect(await said(raw, 'SET', '/k', 'v', 'NX', 'PX', 1_000)).toMatch(/cannot be the name of a lease/)
    await raw.ask('SET', 'k', 'v', 'NX', 'PX', 5_000)
    expect(await said(raw, 'PEXPIRE', 'k', 20_000)).toBe(1)
    expect(await said(raw, 'PTTL', 'k')).toBeGreaterThan(15_000)
    expect(await said(raw, 'PEXPIRE', 'k', 86_400_001)).toMatch(/cannot be extended to 86400001 ms, only to 86400000 ms/)
    expect(await said(raw, 'SET', 'k', 'w', 'IFEQ', 'v', 'PX', 5_000)).toMatch(/cannot be changed/)
    expect(await said(raw, 'SET', 'k', 'w', 'IFEQ', 'w', 'PX', 5_000)).toBe(null)
    expect(await said(raw, 'PEXPIRE', 'k', 0)).toBe(1)
    expect(await said(raw, 'EXISTS', 'k')).toBe(0)
  })

  test('needs a key with acquire, register and read for redis/, where there are keys', async () => {
    await using here = await open()
    const key = async (name: string, ...allow: readonly ['acquire' | 'register' | 'read', string][]) => {
      const hash = hashSecret(name)
      await here.server.guarded.propose(
        { key: 0, name: 'operator', operator: true },
        { kind: 'key', name, hash, allow: allow.map(([verb, prefix]) => ({ verb, prefix })) },
      )
    }
    await key('full', ['acquire', 'redis'], ['register', 'redis'], ['read', 'redis'])
    await key('blind', ['acquire', 'redis/a'], ['register', 'redis/a'])
    using raw = new Raw(here.port)
    expect(await said(raw, 'SET', 'a', 'v', 'NX', 'PX', 5_000)).toMatch(/^(NOAUTH|UNAUTHENTICATED) /)
    await raw.ask('AUTH', 'blind')
    expect(await said(raw, 'SET', 'b', 'v', 'NX', 'PX', 5_000)).toMatch(/^NOPERM /)
    expect(await said(raw, 'GET', 'a')).toMatch(/^NOPERM /)
    using other = new Raw(here.port)
    await other.ask('AUTH', 'user', 'full')
    expect(await said(other, 'SET', 'b', 'v', 'NX', 'PX', 5_000)).toBe('OK')
    expect(await said(other, 'EVAL', RELEASE, 1, 'b', 'v')).toBe(1)
    expect(await said(other, 'SET', 'a', 'v', 'NX', 'PX', 5_000)).toBe('OK')
    expect(await said(raw, 'DEL', 'a')).toMatch(/^NOPERM /)
  })
})

describe('scripts', () => {
  test('are recognised by what they do, however they are written', async () => {
    await using here = await open()
    using raw = new Raw(here.port)
    const same = [
      RELEASE,
      "-- only mine\nlocal found = redis.call('GET', KEYS[1]);\nif (found == ARGV[1]) then\n  redis.call('DEL', KEYS[1])\n  return 1\nend\nreturn 0",
      'local v = redis.pcall("get", KEYS[1]) if not v or v ~= ARGV[1] then return 0 elseif true then return redis.call("unlink", unpack(KEYS)) end',
      'for i = 1, #KEYS do if redis.call("get", KEYS[i]) ~= ARGV[1] then return 0 end end --[[ all ]] return redis.call("del", KEYS[1])',
    ]
    for (const script of same) {
      await raw.ask('SET', 'k', 'v', 'NX', 'PX', 5_000)
      expect(await said(raw, 'EVAL', script, 1, 'k', 'w'), script).toBe(0)
      expect(await said(raw, 'EVAL', script, 1, 'k', 'v'), script).toBe(1)
      expect(await said(raw, 'EXISTS', 'k'), script).toBe(0)
    }
  })

  test('are kept for EVALSHA, and one that is not kept is answered as Redis does', async () => {
    await using here = await open()
    using raw = new Raw(here.port)
    const sha = createHash('sha1').update(RELEASE).digest('hex')
    expect(await said(raw, 'EVALSHA', sha, 1, 'k', 'v')).toBe('NOSCRIPT No matching script. Please use EVAL.')
    expect(await said(raw, 'SCRIPT', 'LOAD', RELEASE)).toBe(sha)
    expect(await said(raw, 'SCRIPT', 'EXISTS', sha, 'f'.repeat(40))).toEqual([1, 0])
    expect(await said(raw, 'EVALSHA', sha, 1, 'k', 'v')).toBe(0)
    expect(await said(raw, 'SCRIPT', 'FLUSH')).toBe('OK')
    expect(await said(raw, 'EVALSHA', sha, 1, 'k', 'v')).toMatch(/^NOSCRIPT/)
  })

  test('need a right even if they name no key, and are kept for each key', async () => {
    await using here = await open()
    const keys = [
      { name: 'a', prefix: 'redis/a' },
      { name: 'b', prefix: 'redis/b' },
      { name: 'stranger', prefix: 'nothing/here' },
    ]
    for (const { name, prefix } of keys)
      await propose(here.lessor, { kind: 'key', name, hash: hashSecret(name), allow: [{ verb: 'read', prefix }] })
    const connected = async (key: string) => {
      const raw = new Raw(here.port)
      expect(await said(raw, 'AUTH', key)).toBe('OK')
      return raw
    }
    using stranger = await connected('stranger')
    for (const words of [
      ['EVAL', 'return 1', 0],
      ['EVAL', 'return 1', 1, 'lock-signal:a'],
      ['EVAL', 'return 1', 1, 'a'],
      ['SCRIPT', 'LOAD', 'return 1'],
    ] as const)
      expect(await said(stranger, ...words), words.join(' ')).toMatch(/^NOPERM /)
    using a = await connected('a')
    using b = await connected('b')
    const sha = await said(a, 'SCRIPT', 'LOAD', 'return 7')
    expect(await said(a, 'EVALSHA', String(sha), 0)).toBe(7)
    expect(await said(b, 'EVALSHA', String(sha), 0)).toMatch(/^NOSCRIPT/)
    expect(await said(b, 'SCRIPT', 'FLUSH')).toBe('OK')
    expect(await said(a, 'SCRIPT', 'EXISTS', String(sha))).toEqual([1])
    using again = await connected('a')
    expect(await said(again, 'EVALSHA', String(sha), 0)).toBe(7)
  })

  test('that do anything else are refused, and the answer says what they call and what to use', async () => {
    await using here = await open()
    using raw = new Raw(here.port)
    for (const [script, what] of [
      ['return redis.call("hset", KEYS[1], "f", "v")', /calls HSET of k.*LEASE\.ACQUIRE/],
      ['return redis.call("lpush", KEYS[1], "v")', /calls LPUSH of k/],
      ['while true do end', /"while" is not understood/],
      ['local f = function() end', /"function" is not understood/],
      ['return os.execute("id")', /calls os\.execute/],
      ['return ("x"):rep(1e9)', /is not understood/],
      [`return ${'('.repeat(200)}1${')'.repeat(200)}`, /nested deeper/],
      ['for i = 1, 1e9 do local x = i end return 1', /more than 10000 steps/],
      [`return "${'x'.repeat(20_000)}"`, /longer than 8192/],
      ['local t={1}; for i=1,40 do t={t,t} end return t', /nested deeper/],
      ["local s='xxxxxxxxxxxxxxxx'; for i=1,30 do s=s..s end return s", /bytes of text/],
      ['return KEYS[1] + 1', /a number is expected/],
    ] as const)
      expect(await said(raw, 'EVAL', script, 1, 'k', 'v'), script.slice(0, 60)).toMatch(what)
    expect(await said(raw, 'EVAL', 'return 1', 5, 'k')).toMatch(/Number of keys/)
    expect(await said(raw, 'PING')).toBe('PONG')
  })

  test('of two clients that take the same keys never both succeed', async () => {
    await using here = await open()
    const take =
      'for i, key in ipairs(KEYS) do if redis.call("exists", key) == 1 then return 0 end end for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end return #KEYS'
    const raws = Array.from({ length: 8 }, () => new Raw(here.port))
    try {
      for (let round = 0; round < 10; round++) {
        const taken = await Promise.all(
          raws.map((raw, i) => said(raw, 'EVAL', take, 2, ...(i % 2 ? ['a', 'b'] : ['b', 'a']), `v${i}`, 5_000)),
        )
        expect(taken.filter(count => count === 2)).toHaveLength(1)
        expect(taken.filter(count => count === 0)).toHaveLength(7)
        const winner = taken.indexOf(2)
        expect(await said(raws[winner]!, 'DEL', 'a', 'b')).toBe(2)
      }
    } finally {
      for (const raw of raws) raw[Symbol.dispose]()
    }
  })
})

describe('commands of one connection', () => {
  test('that name the same key are carried out in the order in which they were sent', async () => {
    await using here = await open()
    using raw = new Raw(here.port)
    const sent = [
      command('SET', 'k', 'v', 'NX', 'PX', 5_000),
      command('EVAL', RELEASE, 1, 'k', 'v'),
      command('SET', 'k', 'w', 'NX', 'PX', 5_000),
      command('PEXPIRE', 'k', 4_000),
      command('GET', 'k'),
      command('DEL', 'k', 'other'),
      command('PEXPIRE', 'k', 4_000),
      command('EXISTS', 'k', 'other'),
      command('GET', 'free'),
    ]
    raw.send(Buffer.concat(sent))
    const replies: unknown[] = []
    for (const _ of sent) replies.push(await raw.next())
    expect(replies).toEqual(['OK', 1, 'OK', 1, 'w', 1, 0, 0, null])
  })

  test('that name different keys are written together, and a lock and its release are two commands of the log', async () => {
    await using here = await open()
    using raw = new Raw(here.port)
    const take = 'if redis.call("exists", KEYS[1]) == 1 then return 0 end redis.call("set", KEYS[1], ARGV[1], "PX", 5000) return 1'
    await raw.ask('SCRIPT', 'LOAD', take)
    const { commands, appends } = here.lessor.stats
    const keys = Array.from({ length: 100 }, (_, i) => `k${i}`)
    for (const script of [take, RELEASE]) {
      raw.send(Buffer.concat(keys.map(key => command('EVAL', script, 1, key, 'v'))))
      for (const key of keys) expect(await raw.next(), key).toBe(1)
    }
    expect(here.lessor.stats.commands - commands).toBe(200)
    expect(here.lessor.stats.appends - appends).toBeLessThan(20)
  })
})

test('a server that has not yet applied what another answered looks at the end of the log before it denies something', async () => {
  await using here = await open()
  const { commands = [] } = redisFace()
  const caller = (isBehind: boolean): FaceCaller => ({
    lessor: {
      submit: (...asked) => here.lessor.submit(...asked),
      watch: (...asked) => here.lessor.watch(...asked),
      read: async (query, options) => {
        const view = await here.lessor.read(query, options)
        return isBehind && !options?.consistent && query.kind === 'resource' ? { ...view, value: { ...view.value, grants: [] } } : view
      },
    },
    key: 0,
    holder: 'ann',
    clock: systemClock,
    names: SAME_NAMES,
    signal: new AbortController().signal,
  })
  const run = (isBehind: boolean, name: string, ...args: readonly string[]) =>
    commands.find(known => known.name === name)!.run(args, caller(isBehind))
  const taking = 'if redis.call("exists", KEYS[1]) == 1 then return 0 end redis.call("set", KEYS[1], ARGV[1], "PX", 5000) return 1'
  const renewing = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], 5000) else return 0 end'
  for (const [end, ...words] of [
    ['DEL', 'k'],
    ['DELIFEQ', 'k', 'v'],
    ['EVAL', RELEASE, '1', 'k', 'v'],
    ['EVAL', 'local k = "k" if redis.call("get", k) == ARGV[1] then return redis.call("del", k) end return 0', '0', 'v'],
  ] as const) {
    expect(await run(false, 'SET', 'k', 'v', 'NX', 'PX', '5000')).toEqual({ status: 'OK' })
    expect(await run(true, 'GET', 'k')).toBe('v')
    expect(await run(true, 'EXISTS', 'k')).toBe(1)
    expect(await run(true, 'EVAL', taking, '1', 'k', 'w')).toBe(0)
    expect(await run(true, 'EVAL', renewing, '1', 'k', 'v')).toBe(1)
    expect(await run(true, 'PEXPIRE', 'k', '5000')).toBe(1)
    expect(await run(true, end, ...words), end).toBe(1)
    expect(await run(false, 'EXISTS', 'k')).toBe(0)
  }
})

test('BLPOP of the signal of python-redis-lock is answered when the lock is free', async () => {
  await using here = await open()
  using raw = new Raw(here.port)
  using waiter = new Raw(here.port)
  expect(await said(waiter, 'BLPOP', 'lock-signal:jobs', 0)).toEqual(['lock-signal:jobs', '1'])
  await raw.ask('SET', 'lock:jobs', 'v', 'NX', 'PX', 60_000)
  expect(await said(waiter, 'BLPOP', 'lock-signal:jobs', '0.01')).toBe(null)
  const free = said(waiter, 'BLPOP', 'lock-signal:jobs', 0)
  expect(await said(raw, 'DEL', 'lock:jobs')).toBe(1)
  expect(await free).toEqual(['lock-signal:jobs', '1'])
  expect(await said(waiter, 'BLPOP', 'queue', 0)).toMatch(/lock-signal:NAME only/)
  expect(await said(waiter, 'BLPOP', 'lock-signal:jobs', '1e99')).toMatch(/timeout/)
})

test('frames of real clients with random damage end in an error of Redis or a closed connection, and nothing is disturbed', async () => {
  await using here = await open()
  const frames = [
    command('SET', 'k', 'v', 'NX', 'PX', 1_000),
    command('EVAL', RELEASE, 1, 'k', 'v'),
    command('EVALSHA', createHash('sha1').update(RELEASE).digest('hex'), 1, 'k', 'v'),
    command('PEXPIRE', 'k', 1_000),
    command('DELEX', 'k', 'IFEQ', 'v'),
    command('SCRIPT', 'LOAD', RELEASE),
    command('SET', 'k', 'v', 'IFEQ', 'v', 'PX', 500),
  ]
  using watcher = new Raw(here.port)
  const pick = random(17)
  for (let i = 0; i < 400; i++) {
    using raw = new Raw(here.port)
    const bytes = Buffer.from(frames[pick(frames.length)]!)
    for (let n = 1 + pick(4); n > 0; n--) bytes[pick(bytes.length)] = pick(3) === 0 ? 0x0a : pick(256)
    raw.send(bytes)
    raw.send(command('QUIT'))
    raw.socket.end()
    for (let reply = await raw.next(); reply !== 'closed'; reply = await raw.next())
      if (reply instanceof Error) expect(reply.message).toMatch(/^[A-Z]+ /)
    if (i % 50 === 0) expect(await said(watcher, 'PING')).toBe('PONG')
  }
})
