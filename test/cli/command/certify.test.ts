import { readdirSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import type { Fault } from '../../../src/cli/certify/fault.ts'
import { disorder, latency, type Measured, missing } from '../../../src/cli/certify/measure.ts'
import { type Findings, objections } from '../../../src/cli/certify/verdict.ts'
import type { LogRecord } from '../../../src/store.ts'
import { certify, lastOf, linesOf, SENTENCES } from '../../support/certify.ts'
import { Place } from '../../support/cli.ts'
import { describeEngine, type Engine, engine, freePorts } from '../../support/engine.ts'
import { tell } from '../../support/redis-command.ts'

/** Owning is not for Redis: eight sentences say nothing about it. Two need a user whose rights are taken away. */
const NOT_FOR_REDIS = 10

test('a file is certified, its measurements are said to people, and nothing is left beside it', async () => {
  await using place = new Place()
  const { code, stdout, stderr } = await place.run(['certify', `file:${place.file('mine.db')}`])
  expect(stderr).toContain(`${SENTENCES}/${SENTENCES} passed`)
  expect(stdout).toMatch(/^durable on acknowledgement +yes +not tried: a file has no engine/m)
  expect(stdout).toMatch(/^commit latency +p50 [\d.]+ ms, p99 [\d.]+ ms$/m)
  expect(stdout).toMatch(/^writer killed +nothing acknowledged is lost +\d+ acknowledged, none lost$/m)
  expect(stdout).toContain(`${SENTENCES} passed, 0 failed, 0 not tried`)
  expect(stdout.trimEnd()).toMatch(/\ncertified$/)
  expect(code).toBe(0)
  expect(readdirSync(place.path)).toEqual([])
})

test('what cannot be reached is 69, and what is no engine is a mistake of the caller', async () => {
  await using place = new Place()
  const [port] = await freePorts(1)
  expect(await place.run(['certify', `redis://127.0.0.1:${port}`])).toMatchObject({ code: 69, stdout: '' })
  for (const url of ['memory:', 'leasehold://127.0.0.1', 'file:', 'nonsense'])
    expect(await place.run(['certify', url]), url).toMatchObject({ code: 64, stdout: '' })
})

describeEngine('redis', 'certifying', () => {
  test('a Redis that syncs is certified: answers cut off, a writer killed and the engine killed lose nothing', async () => {
    await using redis = await engine('redis')
    await using place = new Place()
    const finished = await certify(place, redis)
    const last = lastOf(finished)
    expect(last).toMatchObject({ objections: [], certified: true, store: 'redis', profile: { durable: true } })
    expect(last.measured).toMatchObject({ durable: { says: true, measured: 'passed' }, order: { kept: true } })
    expect(last.measured.commit.p50).toBeGreaterThan(0)
    expect(last.measured.push.p99).toBeGreaterThanOrEqual(last.measured.push.p50)
    expect(last.measured.throughput.perSecond).toBeGreaterThan(0)
    expect(last.faults.answersCut).toMatchObject({ result: 'passed', once: 0, twice: 10, proposed: 10, applied: 10 })
    expect(last.faults.answersCut.cut).toBeGreaterThanOrEqual(20)
    expect(last.faults.writerKilled).toMatchObject({ result: 'passed', lost: 0 })
    expect(last.faults.restart).toMatchObject({ result: 'passed', lost: 0, noticed: true, told: false })
    expect(last.faults.restart.unavailable).toBeGreaterThan(10)
    expect(last.sentences).toEqual({ passed: SENTENCES - NOT_FOR_REDIS, failed: 0, notTried: NOT_FOR_REDIS })
    expect(finished.code).toBe(0)
    expect(linesOf(finished).filter(({ sentence }) => sentence !== undefined)).toHaveLength(SENTENCES)
    expect(await keys(redis)).toEqual([])
  })

  test('a Redis that does not sync is not certified, though it loses nothing when it is merely killed', async () => {
    await using redis = await engine('redis', { args: ['--appendfsync', 'no'] })
    await using place = new Place()
    const finished = await certify(place, redis)
    const last = lastOf(finished)
    expect(last).toMatchObject({ certified: false, profile: { durable: false }, faults: { restart: { result: 'passed', lost: 0 } } })
    expect(last.objections).toEqual([expect.stringMatching(/not durable.*appendfsync no/)])
    expect(finished.code).toBe(1)
  })

  test('a Redis that keeps nothing is not certified, and what a restart lost is counted', async () => {
    await using redis = await engine('redis', { args: ['--appendonly', 'no'] })
    await using place = new Place()
    const finished = await certify(place, redis)
    const last = lastOf(finished)
    expect(last).toMatchObject({ certified: false, profile: { durable: false } })
    const { acknowledged, lost, told } = last.faults.restart
    expect(acknowledged).toBeGreaterThanOrEqual(100)
    expect(lost).toBe(acknowledged)
    expect(told).toBe(true)
    expect(last.objections).toEqual([expect.stringMatching(/not durable/), expect.stringMatching(/^restart: \d+ of \d+ acknowledged/)])
    expect(finished.code).toBe(1)
  })

  test('what we may not try is not passed, and what the engine refuses is failed', async () => {
    await using redis = await engine('redis')
    await tell(redis, 'ACL', 'SETUSER', 'few', 'on', '>rights', '~*', '+@all', '-unlink', '-persist', '-scan')
    await using place = new Place()
    const finished = await place.run(['certify', redis.url.replace('//', '//few:rights@'), '--json', '--restart', 'exit 3'])
    const last = lastOf(finished)
    expect(last.sentences.notTried).toBe(NOT_FOR_REDIS + 3)
    expect(last.sentences.failed).toBeGreaterThan(0)
    const sentences = linesOf(finished).filter(({ sentence }) => sentence !== undefined)
    const lost = sentences.find(({ sentence }) => String(sentence).startsWith('a log that lost its tail'))
    expect(lost).toMatchObject({ result: 'not tried', reason: expect.stringMatching(/may not cut off the end of a log/) })
    expect(sentences.find(({ sentence }) => String(sentence).startsWith('the next store to open finds the whole snapshot'))).toMatchObject({
      result: 'failed',
    })
    expect(last.faults.restart).toMatchObject({ result: 'failed', reason: expect.stringMatching(/ended with 3/) })
    expect(last.left).toEqual([expect.stringMatching(/^keys that begin with \{certify-/)])
    expect((await keys(redis)).length).toBeGreaterThan(0)
    expect(last.certified).toBe(false)
    expect(finished.code).toBe(1)
    expect(finished.stdout + finished.stderr).not.toContain('rights@')
  })
})

describe('what is made of it', () => {
  const at = (index: number, nonce = BigInt(index)): LogRecord => ({ position: { index, nonce }, bytes: new Uint8Array(), age: 0 })

  test('percentiles are samples that were taken', () => {
    const hundred = Array.from({ length: 100 }, (_, i) => 100 - i)
    expect(latency(hundred)).toEqual({ p50: 50, p99: 99, samples: 100 })
    expect(latency([7.123])).toEqual({ p50: 7.12, p99: 7.12, samples: 1 })
  })

  test('a gap, another order, another length and a lost entry are each no order', () => {
    const whole = [at(1), at(2), at(3)]
    expect(disorder([whole, whole], [at(3).position])).toBeUndefined()
    expect(disorder([[at(1), at(3)]], [])).toMatch(/followed by 3/)
    expect(disorder([whole, [at(1), at(2, 9n), at(3)]], [])).toMatch(/different entries at 2/)
    expect(disorder([whole, [at(1)]], [])).toMatch(/3 entries, another 1/)
    expect(disorder([whole], [at(4).position])).toMatch(/1 acknowledged/)
    expect(missing(whole, [at(2, 9n).position, at(3).position])).toEqual([at(2, 9n).position])
  })

  test('anything that failed stands against it, and what was not tried does not', () => {
    const passed: Fault = { result: 'passed' }
    const good: Findings & { readonly measured: Measured } = {
      profile: { store: 'x', durable: true, failover: false, push: true, shared: true, ages: false, notes: [] },
      sentences: [{ name: 'a', result: 'passed' }],
      measured: {
        commit: latency([1]),
        push: latency([1]),
        throughput: { perSecond: 1, openings: 1, entries: 1 },
        order: { kept: true },
      },
      faults: { answersCut: { result: 'not tried' }, writerKilled: passed, restart: { result: 'not tried' } },
      left: [],
    }
    expect(objections(good)).toEqual([])
    const bad: readonly Partial<Findings>[] = [
      { profile: { ...good.profile, durable: false } },
      { sentences: [{ name: 'a', result: 'failed', reason: 'b' }] },
      { measured: { ...good.measured, order: { kept: false, reason: 'c' } } },
      { measured: { failed: 'd' } },
      ...Object.keys(good.faults).map(name => ({ faults: { ...good.faults, [name]: { result: 'failed' as const } } })),
    ]
    for (const change of bad) expect(objections({ ...good, ...change })).toHaveLength(1)
  })
})

// ---------------------------------------------------------------------------------------------------------------------------

async function keys(redis: Engine): Promise<string[]> {
  return (await tell(redis, 'KEYS', '*')) as string[]
}
