import { existsSync, readdirSync } from 'node:fs'
import { rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { expect, test } from 'vitest'
import { PostgresStore } from '../../../src/store/postgres/postgres.ts'
import { chaos, type Fault } from '../../support/chaos/chaos.ts'
import { describePrograms, type Engine, engine } from '../../support/engine.ts'

const HOUR = 3_600_000

/** An engine whose wall clock can be moved while it runs. Its monotonic clock is not changed. */
async function engineOfAnotherTime(): Promise<Engine & { moveTo(offset: string): Promise<void> }> {
  const file = join(tmpdir(), `leasehold-faketime-${process.pid}`) // the engine's user must be able to read it
  await writeFile(file, '+0', { mode: 0o644 })
  const library = readdirSync('/usr/lib')
    .map(name => join('/usr/lib', name, 'faketime/libfaketime.so.1'))
    .find(path => existsSync(path))
  if (library === undefined) throw new Error('the package faketime is installed, and there is no libfaketime.so.1 below /usr/lib')
  const env = { LD_PRELOAD: library, FAKETIME_TIMESTAMP_FILE: file, FAKETIME_NO_CACHE: '1', FAKETIME_DONT_FAKE_MONOTONIC: '1' }
  const server = await engine('postgres', { env })
  const dispose = server[Symbol.asyncDispose].bind(server)
  return Object.assign(server, {
    moveTo: (offset: string) => writeFile(file, offset),
    [Symbol.asyncDispose]: async () => {
      await dispose()
      await rm(file, { force: true })
    },
  })
}

async function offsetOf(url: string): Promise<number> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    const { rows } = await client.query('select extract(epoch from clock_timestamp()) * 1000 as ms')
    return Number(rows[0].ms) - Date.now()
  } finally {
    await client.end()
  }
}

describePrograms('postgres', [{ program: 'faketime', packages: ['faketime'] }], "the engine's wall clock", () => {
  test('moved forward and back by an hour ends no lease and grants none', async () => {
    await using server = await engineOfAnotherTime()
    const off: number[] = []
    const moved = (offset: string, ms: number): Fault => ({
      name: `the wall clock is moved to ${offset}`,
      async run(run) {
        await server.moveTo(offset)
        off.push(Math.abs((await offsetOf(run.engine.url)) - ms))
        await run.pastTheTtl()
      },
    })
    const report = await chaos({
      engine: server,
      store: url => new PostgresStore({ url }),
      child: { module: 'store/postgres/postgres.js', name: 'PostgresStore' },
      faults: [moved('+1h', HOUR), moved('-1h', -HOUR), moved('+0', 0)],
      cycles: 6,
    })
    expect(Math.max(...off)).toBeLessThan(HOUR / 60) // the clock was moved
    expect(report.violations).toEqual([])
    expect(report.lost).toBeLessThanOrEqual(report.beliefs / 4) // only leases that their holders did not renew
  })
})
