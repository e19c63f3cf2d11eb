/** Real clients of Consul, unmodified, on the real wire. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { consulFace } from '../../../src/face/consul/face.ts'
import { httpListener } from '../../../src/server/http/http-listener.ts'
import { consulNode, consulProgram, consulPython, installedConsul } from '../../support/client-sets.ts'
import { orSkip, output, python } from '../../support/foreign-clients.ts'
import { recordedFace } from '../../support/recorded-face.ts'
import { place } from '../../support/resp-place.ts'

const LONG = { timeout: 900_000 }

const RECORDED = new URL('recorded.jsonl', import.meta.url)

const world = () => place({ faces: [recordedFace(consulFace(), RECORDED)], http: httpListener() })

async function lines(program: string, command: string, port: number, ...args: readonly string[]): Promise<readonly string[]> {
  return (await output(program, command, `127.0.0.1:${port}`, ...args)).trimEnd().split('\n')
}

describe("Consul's Go client", () => {
  test('Lock takes, refuses, waits, hands over and learns that it was lost', LONG, async context => {
    const program = await orSkip('Go api', consulProgram(), context)
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
    const program = await orSkip('Go api', consulProgram(), context)
    await using here = await world()
    expect(await lines(program, 'semaphore', here.port)).toEqual(['total 5 within the limit true', 'destroy: <nil>', 'left: 0'])
  })

  test('sessions are made, shown, renewed, listed and destroyed, and delete their keys', LONG, async context => {
    const program = await orSkip('Go api', consulProgram(), context)
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
    const program = await orSkip('Go api', consulProgram(), context)
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
    const program = await orSkip('Go api', consulProgram(), context)
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

// Consul's program must be built from its Go module, which takes minutes (`npm run bench -- face-consul` does it). So this test exists only where the program
// does; Consul's Go client is tested everywhere.
const program = installedConsul()
if (program === undefined)
  console.warn('NOT TESTED: `consul lock`, because there is no consul on the PATH or in the cache of the benchmark')
else
  test('consul lock runs its commands one after another, and says that one failed', LONG, async () => {
    await using here = await world()
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-consul-'))
    const log = join(folder, 'log')
    const shell = () =>
      output(program, 'lock', `-http-addr=127.0.0.1:${here.port}`, 'jobs/shell', `echo in >>${log}; sleep 0.05; echo out >>${log}`)
    try {
      await Promise.all([shell(), shell(), shell()])
      expect(readFileSync(log, 'utf8')).toBe('in\nout\n'.repeat(3))
      const failing = output(program, 'lock', '-child-exit-code', `-http-addr=127.0.0.1:${here.port}`, 'jobs/shell', 'exit 3')
      await expect(failing).rejects.toMatchObject({ cause: { code: 2 } })
      const { value } = await here.lessor.read({ kind: 'history', resource: 'consul/jobs/shell/.lock' })
      expect(value.map(({ cause }) => cause)).toEqual(Array(4).fill('released'))
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  })

/** What the test uses of npm consul; it is the package itself. */
interface NpmConsul {
  readonly session: {
    create(o: object): Promise<{ ID: string }>
    renew(id: string): Promise<unknown>
    destroy(id: string): Promise<unknown>
  }
  readonly kv: {
    set(o: object): Promise<boolean>
    get(o: object): Promise<{ Value: string; Session?: string } | undefined>
    keys(prefix: string): Promise<readonly string[]>
    del(key: string): Promise<unknown>
  }
  readonly agent: {
    readonly service: {
      register(o: object): Promise<unknown>
      deregister(id: string): Promise<unknown>
      list(): Promise<Record<string, unknown>>
    }
    readonly check: { pass(id: string): Promise<unknown> }
  }
  readonly health: { service(o: object): Promise<readonly unknown[]> }
}

test('npm consul locks, reads, lists and registers', LONG, async context => {
  const require = await orSkip('npm consul', consulNode(), context)
  const Consul = require('consul')
  await using here = await world()
  const consul: NpmConsul = new Consul({ host: '127.0.0.1', port: here.port })
  const [one, two] = [
    await consul.session.create({ ttl: '15s', name: 'one' }),
    await consul.session.create({ ttl: '15s', lockdelay: '0s' }),
  ]
  expect(await consul.kv.set({ key: 'jobs', value: 'mine', acquire: one.ID })).toBe(true)
  expect(await consul.kv.set({ key: 'jobs', value: 'yours', acquire: two.ID })).toBeFalsy()
  expect(await consul.kv.get({ key: 'jobs' })).toMatchObject({ Value: 'mine', Session: one.ID })
  await consul.session.renew(one.ID)
  expect(await consul.kv.set({ key: 'jobs', value: 'mine', release: one.ID })).toBe(true)
  expect(await consul.kv.set({ key: 'jobs', value: 'yours', acquire: two.ID })).toBe(true)
  await consul.session.destroy(two.ID)
  expect((await consul.kv.get({ key: 'jobs' }))?.Session).toBe(undefined)
  expect(await consul.kv.keys('j')).toEqual(['jobs'])
  await consul.kv.del('jobs')
  expect(await consul.kv.get({ key: 'jobs' })).toBeFalsy()
  await consul.agent.service.register({ name: 'api', address: '10.0.0.2', port: 80, check: { ttl: '15s' } })
  expect(await consul.health.service({ service: 'api', passing: true })).toHaveLength(0)
  await consul.agent.check.pass('service:api')
  expect(await consul.health.service({ service: 'api', passing: true })).toHaveLength(1)
  expect(Object.keys(await consul.agent.service.list())).toEqual(['api'])
  await consul.agent.service.deregister('api')
  expect(await consul.health.service({ service: 'api' })).toHaveLength(0)
})

test('python-consul2 locks, waits, reads, lists and registers', LONG, async context => {
  const interpreter = await orSkip('python-consul2', consulPython(), context)
  await using here = await world()
  const said = await python(
    interpreter,
    `
import sys, threading, consul
c = consul.Consul(host='127.0.0.1', port=int(sys.argv[1]))
one = c.session.create(name='one', ttl=15, lock_delay=0, behavior='delete')
two = c.session.create(ttl=15)
print(c.kv.put('jobs', 'mine', acquire=one), c.kv.put('jobs', 'yours', acquire=two))
index, pair = c.kv.get('jobs')
print(pair['Value'], pair['Session'] == one)
got = []
thread = threading.Thread(target=lambda: got.append(c.kv.get('jobs', index=index, wait='60s')[1]))
thread.start()
print(c.session.renew(one)['TTL'])
c.session.destroy(one)
thread.join()
print(got)
print(c.kv.put('jobs', 'yours', acquire=two), c.kv.put('jobs', 'yours', release=two), c.kv.get('', keys=True)[1])
c.agent.service.register('api', service_id='api-1', address='10.0.0.2', port=80, tags=['a'], check=consul.Check.ttl('15s'))
c.agent.check.ttl_pass('service:api-1')
print([node['Service']['ID'] for node in c.health.service('api', passing=True)[1]], c.catalog.services()[1])
c.agent.service.deregister('api-1')
print(c.health.service('api')[1], c.status.leader() != '')
`,
    String(here.port),
  )
  expect(said.trimEnd().split('\n')).toEqual([
    'True False',
    "b'mine' True",
    '15s',
    '[None]',
    "True True ['jobs']",
    "['api-1'] {'consul': [], 'api': ['a']}",
    '[] True',
  ])
})

test('a Go Lock, npm consul and the library never hold one name together', LONG, async context => {
  const [program, require] = await orSkip('Go api and npm consul beside the library', Promise.all([consulProgram(), consulNode()]), context)
  await using here = await world()
  const ROUNDS = 6
  const stop = new AbortController()
  const holding = new Set<number>()
  const seen: string[] = []
  const watching = (async () => {
    for await (const events of here.lessor.watch('consul/shared', { signal: stop.signal }))
      for (const { type, lease, holder, resource } of events) {
        if (resource === undefined) continue
        if (type === 'granted') {
          expect([...holding], `lease ${lease} of ${holder} was granted while another held it`).toEqual([])
          holding.add(lease)
          seen.push(holder ?? '')
        }
        if (type === 'released' || type === 'lapsed' || type === 'thawed') holding.delete(lease)
      }
  })()
  const Consul = require('consul')
  const consul: NpmConsul = new Consul({ host: '127.0.0.1', port: here.port })
  const withNpm = async () => {
    const { ID } = await consul.session.create({ ttl: '60s', name: 'npm' })
    for (let i = 0; i < ROUNDS; i++) {
      while (!(await consul.kv.set({ key: 'shared', value: 'npm', acquire: ID, flags: '3304740253564472344' })))
        await new Promise(resolve => setTimeout(resolve, 5))
      await consul.kv.set({ key: 'shared', value: 'npm', release: ID, flags: '3304740253564472344' })
    }
  }
  await using leases = await connect(`leasehold://127.0.0.1:${here.port}`)
  const withLibrary = async () => {
    for (let i = 0; i < ROUNDS; i++) {
      await using _lease = await leases.acquire('consul/shared')
    }
  }
  await Promise.all([withNpm(), withLibrary(), lines(program, 'contend', here.port, 'shared', String(ROUNDS))])
  stop.abort()
  await watching
  expect(seen).toHaveLength(3 * ROUNDS)
  expect(seen.filter(holder => holder === 'go (127.0.0.1)')).toHaveLength(ROUNDS)
})
