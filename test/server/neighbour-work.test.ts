/**
 * What one key asks for does not delay another. Every operation of the server is asked for over a large state, in several copies, with a key that may do
 * everything and with one that may do nothing. Judged by counted steps (test/support/neighbours/counted.mjs), so the same on every machine: by the longest turn
 * of the event loop, in which nothing else is read or answered, and by how long the renewal of another key waits.
 *
 * `npm run soak -- neighbours` asks for the same operations of a real server, and measures times.
 */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

interface Measured {
  readonly part: string
  readonly name: string
  readonly way: string
  readonly key: 'rich' | 'poor'
  /** It is refused for every key. */
  readonly refused: boolean
  /** Steps of the longest turn of the event loop. */
  readonly longest: number
  /** Turns of the event loop until it was answered. */
  readonly turns: number
  /** Steps until the neighbour's renewal was answered. */
  readonly waited: number
  readonly renewedAs: number
  readonly status: number
  readonly text: string
}

interface Report {
  readonly measured: readonly Measured[]
  /** The operations in the tables of the server. */
  readonly known: readonly string[]
  readonly routes: readonly string[]
}

const here = (path: string) => fileURLToPath(new URL(`../support/neighbours/${path}`, import.meta.url))
const SIZES = {
  ...{ leases: 12_000, waiters: 2_500, entries: 5_000, instances: 1_000, members: 250 },
  ...{ reservations: 20, poolWaiters: 40, children: 500, revoked: 8 },
}
const COPIES = 2

async function report(): Promise<Report> {
  const plan = JSON.stringify({ sizes: SIZES, copies: COPIES })
  const { stdout } = await promisify(execFile)(process.execPath, ['--import', here('counted.mjs'), here('measure.mjs'), plan], {
    maxBuffer: 64 << 20,
  })
  return JSON.parse(stdout) as Report
}

/** A slice of 5 ms is about 100,000 steps, and the work that it ends with may take as long again or, in its first run, longer. */
const MAX_TURN = 300_000
/** In steps: a few turns. */
const MAX_WAIT = 1_000_000

const LONG = { timeout: 600_000 }
const nameOf = ({ part, name, way, key }: Measured) => `${part} ${name}${way === '' ? '' : ` (${way})`}, ${key} key`

test(
  'no operation takes a long turn of the event loop, whatever the size of the state, and every operation is measured',
  LONG,
  async () => {
    const { measured, known, routes } = await report()
    const asked = new Set(measured.map(({ part, name }) => `${part} ${name}`))
    expect(
      known.filter(name => !asked.has(name)),
      'operations that are not measured',
    ).toEqual([])
    expect([...routes].sort()).toEqual(['/mcp', '/v1/hooks/agent'])

    const failed = measured.filter(({ key, refused, status }) => key === 'rich' && (refused ? status < 400 : status >= 400))
    expect(
      failed.map(found => `${nameOf(found)}: ${found.status} ${found.text}`),
      'operations that did not do what they are measured for',
    ).toEqual([])

    const tooLong = measured.filter(({ longest }) => longest > MAX_TURN)
    expect(tooLong.map(found => `${nameOf(found)}: ${found.longest} steps`)).toEqual([])
    expect(measured.filter(({ renewedAs }) => renewedAs !== 200).map(nameOf), 'a neighbour could not renew').toEqual([])
    expect(measured.filter(({ waited }) => waited > MAX_WAIT).map(found => `${nameOf(found)}: ${found.waited} steps`)).toEqual([])
  },
)
