/** Jobs of cron after the holder of their lease was killed: each is a process that opens the store, asks once and ends. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Finished, Place } from '../support/cli.ts'
import { describeEngine, type Engine, engine, type Kind } from '../support/engine.ts'

/** A holder with a term of 2 s that ends without a word. */
async function deadHolder(here: Place, resource: string): Promise<void> {
  const holder = here.start(['run', resource, '--ttl', '2s', '--holder', 'dead', '--', 'sh', '-c', 'echo up; exec sleep 600'])
  await holder.printed(/up/)
  holder.process.kill('SIGKILL')
  await holder.finished
}

/** Starts jobs one after another until one runs, and returns how each of them ended. The first that finds the holder silent is the first of `rest`. */
async function untilGranted(here: Place, resource: string, ...options: string[]): Promise<{ refused: number; rest: Finished[] }> {
  const job = (...more: string[]) => here.run(['run', resource, '--no-wait', ...options, ...more, '--', 'echo', 'ran'])
  // By the clock of the store, the holder is within its term at first.
  let refused = 0
  let last = await job()
  for (; last.code === 75; refused++) last = await job()
  const rest = [last]
  while (rest.at(-1)!.code === 80) rest.push(await job('--skip-ok'))
  return { refused, rest }
}

function jobs(url: () => string | undefined): void {
  test('with --confirm 300ms jobs end with 80 until the lease of the dead holder has ended, and one of them runs', async () => {
    await using here = new Place({ LEASEHOLD_URL: url() })
    await deadHolder(here, 'short')
    const { rest } = await untilGranted(here, 'short', '--confirm', '300ms')
    // None of them was skipped with 0 because of a holder that is dead.
    expect(rest.at(-1)).toMatchObject({ code: 0, stdout: 'ran\n' })
    for (const { code, stdout, stderr } of rest.slice(0, -1)) {
      expect({ code, stdout }).toEqual({ code: 80, stdout: '' })
      expect(stderr).toMatch(
        /short is held by dead, which was not heard of for .*; its term is 2 s\. That it has ended was not confirmed within/,
      )
    }
  })

  test('by default the first job that finds the holder silent stays until it can run', async () => {
    await using here = new Place({ LEASEHOLD_URL: url() })
    await deadHolder(here, 'whole')
    const { rest } = await untilGranted(here, 'whole')
    expect(rest).toMatchObject([{ code: 0, stdout: 'ran\n' }])
  })
}

describeEngine('postgres', 'jobs after a dead holder', () => onEngine('postgres'))
describeEngine('redis', 'jobs after a dead holder', () => onEngine('redis'))
describeEngine('etcd', 'jobs after a dead holder', () => onEngine('etcd'))

function onEngine(kind: Kind): void {
  let server: Engine
  beforeAll(async () => {
    server = await engine(kind)
  })
  afterAll(() => server?.[Symbol.asyncDispose]())
  jobs(() => server.url)
}

describe('jobs after a dead holder (file)', () => jobs(() => undefined))
