/** A data directory that is restored from an old copy, under a real server process with clients that stay connected. */
import { cpSync, rmSync } from 'node:fs'
import { expect, test } from 'vitest'
import { connect } from '../../src/index.ts'
import type { Lease } from '../../src/lease.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Place, type Running } from '../support/cli.ts'

/** A server on a file, restarted on the same port. */
class Server {
  readonly #place: Place
  #running: Running | undefined
  port = 0

  constructor(place: Place) {
    this.#place = place
  }

  async start(): Promise<void> {
    const listen = ['--listen', `127.0.0.1:${this.port}`]
    this.#running = this.#place.start(['serve', '--store', `file:${this.#place.file('data/leases.db')}`, ...listen])
    const [, port] = await this.#running.printed(/http:\/\/127\.0\.0\.1:(\d+)/)
    this.port = Number(port)
  }

  async stop(): Promise<string> {
    this.#running!.process.kill('SIGTERM')
    return (await this.#running!.finished).stderr
  }
}

/** Resolves when the holder's signal has fired. */
function lost(lease: Lease): Promise<unknown> {
  const { signal } = lease
  if (signal.aborted) return Promise.resolve(signal.reason)
  return new Promise(resolve => signal.addEventListener('abort', () => resolve(signal.reason), { once: true }))
}

test.each(['leasehold', 'http'])(
  'after the data directory was restored from a copy, a holder over %s:// loses its lease, and the lease is not confused with a newer one',
  async scheme => {
    await using place = new Place()
    const server = new Server(place)
    await server.start()
    await server.stop()
    cpSync(place.file('data'), place.file('copy'), { recursive: true })

    await server.start()
    const url = `${scheme}://127.0.0.1:${server.port}`
    await using a = await connect(url, { holder: 'a' })
    const x = await a.acquire('x', { ttl: '12s' })
    expect(x.held).toBe(true)
    await server.stop()
    rmSync(place.file('data'), { recursive: true })
    cpSync(place.file('copy'), place.file('data'), { recursive: true })
    await server.start()

    // B acquires first, and at once: it may be granted before A has reconnected.
    await using b = await connect(url, { holder: 'b' })
    const granted = b.acquire('y', { ttl: '20s' })
    const reason = await lost(x)
    expect(x.held).toBe(false)
    expect(reason).toMatchObject({ code: 'LOST', facts: { cause: 'rewound' } })
    expect(a.losses.at(-1)).toMatchObject({ lease: x.id, cause: 'rewound' })

    await using c = await connect(url, { holder: 'c' })
    const y = await granted
    const again = await c.acquire('x', { ttl: '20s' })
    expect(new Set([x.id, y.id, again.id]).size).toBe(3)
    expect(y.token).toBeGreaterThan(x.token)
    expect(again.token).toBeGreaterThan(x.token)
    expect(await propose(a.lessor, { kind: 'renew', leases: [x.id] })).toMatchObject({ ttls: [-1] })
    expect(await propose(a.lessor, { kind: 'release', lease: x.id })).toMatchObject({ kind: 'refused', code: 'GONE' })
    await x.release()
    await y.renew()
    await again.renew()
    expect([y.held, again.held]).toEqual([true, true])
    const log = await server.stop()
    expect(log).toContain('the log went back')
  },
)
