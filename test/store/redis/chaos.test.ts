import { readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { createClient } from 'redis'
import { expect, test } from 'vitest'
import { RedisStore } from '../../../src/store/redis/redis.ts'
import { type Chaos, chaos, FAULTS, type Fault } from '../../support/chaos/chaos.ts'
import { describeEngine, engine } from '../../support/engine.ts'

/** Sends a command to Redis directly, without a proxy. */
async function tell({ engine: { url } }: Chaos, ...command: string[]): Promise<void> {
  const client = createClient({ url })
  client.on('error', () => {})
  await client.connect()
  await client.sendCommand(command)
  client.destroy()
}

const clientsPaused: Fault = {
  name: 'CLIENT PAUSE for longer than the ttl',
  async run(run) {
    await tell(run, 'CLIENT', 'PAUSE', String(Math.ceil(run.ttl * 1.25)), 'ALL')
    await run.pastTheTtl()
  },
}

const writesPaused: Fault = {
  name: 'CLIENT PAUSE WRITE',
  run: run => tell(run, 'CLIENT', 'PAUSE', String(run.ttl), 'WRITE'),
}

const clientsKilled: Fault = {
  name: 'CLIENT KILL',
  run: run => tell(run, 'CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes'),
}

const scriptsForgotten: Fault = {
  name: 'SCRIPT FLUSH',
  run: run => tell(run, 'SCRIPT', 'FLUSH'),
}

describeEngine('redis', 'chaos', () => {
  test('a failed run keeps its evidence and says where it is', async () => {
    await using redis = await engine('redis')
    const broken: Fault = {
      name: 'a fault that cannot be undone',
      run: async () => {
        throw new Error('the fault cannot be undone')
      },
    }
    const store = (url: string) => new RedisStore({ url })
    const run = chaos({ engine: redis, store, child: { module: 'store/redis/redis.js', name: 'RedisStore' }, faults: [broken], cycles: 1 })
    const { message } = await run.then(
      () => new Error('nothing went wrong'),
      (error: Error) => error,
    )
    const folder = /the fault cannot be undone\nThe evidence is in (.+)$/.exec(message)![1]!
    try {
      const kept = await readdir(folder)
      expect(kept).toEqual(expect.arrayContaining(['engine-0.log', 'harm.json', 'log.json', 'r0.1', 'verdict.json']))
      expect(JSON.parse(await readFile(join(folder, 'verdict.json'), 'utf8'))).toMatchObject({ seed: expect.any(Number), engine: 'redis' })
      expect(await readFile(join(folder, 'engine-0.log'), 'utf8')).toMatch(/Ready to accept connections/)
      expect(await readFile(join(folder, 'log.json'), 'utf8')).toMatch(/"granted"/)
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  test('under a series of faults on one Redis no two holders overlap, no acknowledged record is lost, and grants resume', {
    timeout: 400_000,
  }, async () => {
    await using redis = await engine('redis')
    const report = await chaos({
      engine: redis,
      store: url => new RedisStore({ url }),
      // Shorter than a pause, so that answers arrive after their timeout.
      child: { module: 'store/redis/redis.js', name: 'RedisStore', options: url => ({ url, timeout: 500 }) },
      faults: [...FAULTS, clientsPaused, clientsKilled, writesPaused, scriptsForgotten],
      cycles: 50,
    })
    expect(report.violations, `CHAOS_SEED=${report.seed}`).toEqual([])
    expect(report.snapshots).toBe(true)
    expect(report.beliefs).toBeGreaterThan(200)
    expect(report.lost).toBeGreaterThan(0)
  })
})
