/** Real clients of Consul, unmodified, on the real wire. */
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { consulFace } from '../../../src/face/consul/face.ts'
import { httpListener } from '../../../src/server/http/http-listener.ts'
import { goClients, orSkip, output } from '../../support/foreign-clients.ts'
import { place } from '../../support/resp-place.ts'

const GO = ['github.com/hashicorp/consul/api@v1.32.1']
const LONG = { timeout: 300_000 }

function goProgram(): Promise<string> {
  return goClients(readFileSync(new URL('clients.go', import.meta.url), 'utf8'), ...GO)
}

const world = () => place({ faces: [consulFace()], http: httpListener() })

async function lines(program: string, command: string, port: number, ...args: readonly string[]): Promise<readonly string[]> {
  return (await output(program, command, `127.0.0.1:${port}`, ...args)).trimEnd().split('\n')
}

describe("Consul's Go client", () => {
  test('Lock takes, refuses, waits, hands over and learns that it was lost', LONG, async context => {
    const program = await orSkip('Go api', goProgram(), context)
    await using here = await world()
    expect(await lines(program, 'lock', here.port)).toEqual([
      'locked true',
      'again: Lock already held',
      'other: true',
      'destroy in use: Lock in use',
      'handed over: second 2 true',
      'told',
      expect.stringMatching(/^unlock: /),
      'not held: Lock not held',
    ])
    const { value } = await here.lessor.read({ kind: 'history', resource: 'consul/jobs/nightly' })
    expect(value[0]).toMatchObject({ holder: 'Consul API Lock (127.0.0.1)', cause: 'released' })
  })

  test('Semaphore never lets more inside than it has slots, and leaves nothing', LONG, async context => {
    const program = await orSkip('Go api', goProgram(), context)
    await using here = await world()
    expect(await lines(program, 'semaphore', here.port)).toEqual(['total 5 within the limit true', 'destroy: <nil>', 'left: 0'])
  })

  test('sessions are made, shown, renewed, listed and destroyed, and delete their keys', LONG, async context => {
    const program = await orSkip('Go api', goProgram(), context)
    await using here = await world()
    expect(await lines(program, 'sessions', here.port)).toEqual([
      'true mine 20s delete 1s',
      'renewed true 20s',
      'listed 1 true true',
      'acquired true',
      'deleted with its session true',
      'gone true',
      'without a ttl: true',
      'too short: true',
      'ended session: true',
    ])
  })

  test('keys are written, compared, waited for, listed and deleted', LONG, async context => {
    const program = await orSkip('Go api', goProgram(), context)
    await using here = await world()
    expect(await lines(program, 'keys', here.port)).toEqual([
      '[0 255 1] true true',
      'cas false true false',
      'waited for came',
      '5 4 [config/a config/b config/c/]',
      'deleted false true 1 configured',
      'no name: true',
    ])
  })

  test('services are registered, checked, discovered, maintained and deregistered', LONG, async context => {
    const program = await orSkip('Go api', goProgram(), context)
    await using here = await world()
    expect(await lines(program, 'services', here.port)).toEqual([
      'passing 1',
      'all 2 critical',
      'waited 2',
      'web-1 10.0.0.7 8080 [blue] 2 leasehold',
      'service:web-1 warning',
      'critical 1',
      '[blue]',
      '2 web-1 8080',
      '2 web',
      'critical web-2',
      'gone: true',
      'true 1 [dc1] leasehold',
    ])
    const { value } = await here.lessor.read({ kind: 'entries', prefix: 'services/web' })
    expect(value.map(({ key }) => key)).toEqual(['services/web/web-2', 'services/web/web-2/state'])
  })
})
