/** Real clients of Kubernetes, unmodified, on the real wire: client-go, controller-runtime, kubectl, kube-rs and the Python client. */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { kubernetesProgram, kubernetesPython, kubernetesRust } from '../../support/client-sets.ts'
import { orSkip, output } from '../../support/foreign-clients.ts'
import { type KubernetesPlace, kubernetesPlace, leaseOf } from '../../support/kubernetes-place.ts'

/** How long a client may take for its next line, on a busy machine. */
const PATIENCE = EVENT_TIMEOUT
/** The first build of the Go clients takes minutes. */
const LONG = { timeout: 1_500_000 }

const program = kubernetesProgram

const open: AsyncDisposable[] = []
afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each[Symbol.asyncDispose]()
})

/** A server, and a referee that watches its log: no two leases ever hold one name together. */
async function place(): Promise<KubernetesPlace> {
  const here = await kubernetesPlace()
  const stop = new AbortController()
  const holding = new Map<string, number>()
  const broken: string[] = []
  const watching = (async () => {
    for await (const events of here.lessor.watch('kubernetes', { after: 0, signal: stop.signal }))
      for (const { type, lease, holder, resource = '' } of events) {
        const present = holding.get(resource)
        if (type === 'granted' && present !== undefined) broken.push(`${resource} was granted to ${holder} while lease ${present} held it`)
        if (type === 'granted') holding.set(resource, lease)
        else if ((type === 'released' || type === 'lapsed' || type === 'revoked') && present === lease) holding.delete(resource)
      }
  })()
  open.push({
    async [Symbol.asyncDispose]() {
      stop.abort()
      await watching
      await here[Symbol.asyncDispose]()
      expect(broken).toEqual([])
    },
  })
  return here
}

/** A client that prints lines, and ends when the test does. */
class LineProgram implements AsyncDisposable {
  readonly #child: ChildProcess
  readonly lines: string[] = []
  #errors = ''
  #wake = () => {}

  constructor(command: string, args: readonly string[], env: Readonly<Record<string, string>> = {}) {
    this.#child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'], env: { ...process.env, ...env } })
    let rest = ''
    this.#child.stdout!.on('data', (chunk: Buffer) => {
      const parts = (rest + chunk).split('\n')
      rest = parts.pop()!
      this.lines.push(...parts)
      this.#wake()
    })
    this.#child.stderr!.on('data', (chunk: Buffer) => {
      this.#errors = (this.#errors + chunk).slice(-2_000)
    })
    this.#child.on('close', () => {
      this.lines.push('(ended)')
      this.#wake()
    })
    open.push(this)
  }

  /** Waits for a line that matches. */
  async says(pattern: RegExp | string): Promise<string> {
    for (;;) {
      const line = this.lines.find(each => (typeof pattern === 'string' ? each === pattern : pattern.test(each)))
      if (line !== undefined) return line
      if (this.lines.at(-1) === '(ended)') throw new Error(`it ended without ${pattern}: ${this.lines.join('\n')}\n${this.#errors}`)
      await new Promise<void>((resolve, reject) => {
        const late = setTimeout(() => reject(new Error(`it did not say ${pattern}: ${this.lines.join('\n')}\n${this.#errors}`)), PATIENCE)
        this.#wake = () => {
          clearTimeout(late)
          resolve()
        }
      })
    }
  }

  send(line: string): void {
    this.#child.stdin!.write(`${line}\n`)
  }

  kill(): void {
    this.#child.kill('SIGKILL')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.kill()
    if (!this.lines.includes('(ended)')) await this.says('(ended)')
  }
}

const ELECTOR = `
import sys
from kubernetes import client
from kubernetes.leaderelection import leaderelection, electionconfig
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock
configuration = client.Configuration()
configuration.host = sys.argv[1]
client.Configuration.set_default(configuration)
say = lambda text: print(text, flush=True)
leaderelection.LeaderElection(electionconfig.Config(
    LeaseLock(sys.argv[2], 'team', sys.argv[3]), lease_duration=3, renew_deadline=2, retry_period=1,
    onstarted_leading=lambda: say('leads ' + sys.argv[3]), onstopped_leading=lambda: say('stopped ' + sys.argv[3]))).run()
`

describe('client-go', () => {
  test('an elector leads, releases on cancel, and the next one leads at once', LONG, async context => {
    const clients = await orSkip('client-go leaderelection', program(), context)
    const here = await place()
    const one = new LineProgram(clients, ['elect', here.url, 'job', 'one', 'protobuf'])
    await one.says('leads one')
    expect(await here.holders('job')).toEqual(['one'])
    const two = new LineProgram(clients, ['elect', here.url, 'job', 'two', 'json'])
    await two.says('sees one')
    one.send('stop')
    await one.says('stopped one')
    await two.says('leads two')
    expect(await here.holders('job')).toEqual(['two'])
    const { json } = await here.kube('GET', '/job')
    expect(json.spec).toMatchObject({ holderIdentity: 'two', leaseDurationSeconds: 3, leaseTransitions: 1 })
    const { value } = await here.lessor.read({ kind: 'history', resource: 'kubernetes/team/job' })
    expect(value).toMatchObject([{ holder: 'one' }])
  })

  test('after an elector was killed, another leads when its term is over', LONG, async context => {
    const clients = await orSkip('client-go leaderelection', program(), context)
    const here = await place()
    const one = new LineProgram(clients, ['elect', here.url, 'job', 'one', 'json'])
    await one.says('leads one')
    const two = new LineProgram(clients, ['elect', here.url, 'job', 'two', 'protobuf'])
    await two.says('sees one')
    one.kill()
    await one.says('(ended)')
    // No time has passed on the server: its term goes on, though the second elector tries after three seconds of its own clock.
    const asked = here.server.guarded.lessor.read({ kind: 'resource', resource: 'kubernetes/team/job' })
    expect((await asked).value.grants).toMatchObject([{ holder: 'one' }])
    await here.clock.advance(3_100)
    await two.says('leads two')
    expect(await here.holders('job')).toEqual(['two'])
  })

  test('an elector and the library exclude each other', LONG, async context => {
    const clients = await orSkip('client-go leaderelection', program(), context)
    const here = await place()
    await using leases = await connect(`leasehold://127.0.0.1:${here.port}`, { holder: 'typescript' })
    const lease = await leases.acquire('kubernetes/team/job')
    const one = new LineProgram(clients, ['elect', here.url, 'job', 'one', 'protobuf'])
    await one.says('sees typescript')
    expect(one.lines).not.toContain('leads one')
    await lease.release()
    await one.says('leads one')
    expect(await leases.tryAcquire('kubernetes/team/job')).toBeUndefined()
    const next = leases.acquire('kubernetes/team/job')
    one.send('stop')
    await one.says('stopped one')
    await (await next).release()
  })

  test('the typed client with protobuf bodies gets what it expects of each call', LONG, async context => {
    const clients = await orSkip('client-go with protobuf', program(), context)
    const here = await kubernetesPlace({ events: 8 })
    open.push(here)
    const key = await here.key('team', [{ verb: 'admin', prefix: 'kubernetes' }])
    const said = await output(clients, 'typed', here.url, key)
    expect(said.trim().split('\n')).toEqual([
      'created typed true one 2026-01-02T03:04:05.678901Z u-1',
      'created again AlreadyExists',
      'updated 1 true',
      'updated from an old version Conflict',
      'taken while it is held Conflict',
      'patched x a',
      'applied UnsupportedMediaType',
      'got what is not there NotFound',
      'listed 1 true',
      'deleted another Conflict',
      'deleted ok',
      'watched MODIFIED typed one 1',
      'watched MODIFIED typed one 2',
      'watched DELETED typed one 2',
      'watched from long ago ERROR Expired',
    ])
  })

  test('an informer sees what is there, and every change', LONG, async context => {
    const clients = await orSkip('client-go informers', program(), context)
    const here = await place()
    await here.kube('POST', '', leaseOf('a', { holderIdentity: 'ann' }))
    const informer = new LineProgram(clients, ['informer', here.url])
    await informer.says('synced 1')
    const { json } = await here.kube('POST', '', leaseOf('b', { holderIdentity: 'bob', leaseDurationSeconds: 15 }))
    await informer.says('added team/b bob')
    await here.kube('PUT', '/b', { ...json, spec: { ...json.spec, leaseTransitions: 1 } })
    await informer.says('changed team/b bob')
    await here.kube('DELETE', '/b')
    await informer.says('deleted team/b bob')
    expect(informer.lines).toContain('added team/a ann')
  })
})

test('a manager of controller-runtime leads, and hands over when it stops', LONG, async context => {
  const clients = await orSkip('controller-runtime', program(), context)
  const here = await place()
  const one = new LineProgram(clients, ['manager', here.url, 'operator'])
  await one.says('leads')
  expect(await here.holders('operator')).toHaveLength(1)
  const two = new LineProgram(clients, ['manager', here.url, 'operator'])
  one.send('stop')
  await one.says('stopped')
  await two.says('leads')
  expect(await here.holders('operator')).toHaveLength(1)
})

test('electors of the Python client and of client-go follow each other', LONG, async context => {
  const [clients, interpreter] = await orSkip('the Python client', Promise.all([program(), kubernetesPython()]), context)
  const here = await place()
  const python = new LineProgram(interpreter, ['-c', ELECTOR, here.url, 'job', 'python'])
  await python.says('leads python')
  expect(await here.holders('job')).toEqual(['python'])
  const go = new LineProgram(clients, ['elect', here.url, 'job', 'go', 'protobuf'])
  await go.says('sees python')
  python.kill()
  await here.clock.advance(3_100)
  await go.says('leads go')
  const next = new LineProgram(interpreter, ['-c', ELECTOR, here.url, 'job', 'python-2'])
  go.send('stop')
  await go.says('stopped go')
  await next.says('leads python-2')
})

test('an elector of kube-rs leads, keeps the library out, and the next one leads after it stepped down', LONG, async context => {
  const clients = await orSkip('kube-rs', kubernetesRust(), context)
  const here = await place()
  await using leases = await connect(`leasehold://127.0.0.1:${here.port}`)
  const one = new LineProgram(clients, [here.url, 'job', 'one'])
  await one.says('leads one')
  expect(await here.holders('job')).toEqual(['one'])
  expect(await leases.tryAcquire('kubernetes/team/job')).toBeUndefined()
  const two = new LineProgram(clients, [here.url, 'job', 'two'])
  one.send('stop')
  await one.says('stopped one')
  await two.says('leads two')
  expect(await here.holders('job')).toEqual(['two'])
})

describe('kubectl', () => {
  async function kubectl(here: KubernetesPlace, clients: string, { cluster = {}, user = {} } = {}) {
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-kubectl-'))
    open.push({
      async [Symbol.asyncDispose]() {
        rmSync(folder, { recursive: true, force: true })
      },
    })
    const config = join(folder, 'config')
    writeFileSync(
      config,
      JSON.stringify({
        apiVersion: 'v1',
        kind: 'Config',
        clusters: [{ name: 'leasehold', cluster: { server: here.url, ...cluster } }],
        users: [{ name: 'me', user }],
        contexts: [{ name: 'leasehold', context: { cluster: 'leasehold', user: 'me', namespace: 'team' } }],
        'current-context': 'leasehold',
      }),
    )
    const env = { KUBECONFIG: config, HOME: folder }
    const file = join(folder, 'lease.json')
    return {
      file,
      start: (...args: readonly string[]) => new LineProgram(clients, ['kubectl', ...args], env),
      async run(...args: readonly string[]) {
        const running = new LineProgram(clients, ['kubectl', ...args], env)
        await running.says('(ended)')
        return running.lines.slice(0, -1).map(line => line.replaceAll(/ +/g, ' ').trim())
      },
    }
  }

  test('kubectl creates, gets, labels, patches, applies, explains and deletes Leases', LONG, async context => {
    const clients = await orSkip('kubectl', program(), context)
    const here = await place()
    const { run, file } = await kubectl(here, clients)
    writeFileSync(file, JSON.stringify(leaseOf('demo', { holderIdentity: 'ann', leaseDurationSeconds: 15 })))
    expect(await run('create', '-f', file)).toEqual(['lease.coordination.k8s.io/demo created'])
    expect(await run('get', 'leases', '-A')).toEqual(['NAMESPACE NAME HOLDER AGE', expect.stringMatching(/^team demo ann \d+s$/)])
    expect(await here.holders('demo')).toEqual(['ann'])
    expect(await run('label', 'lease', 'demo', 'tier=a')).toEqual(['lease.coordination.k8s.io/demo labeled'])
    expect(await run('get', 'leases', '-l', 'tier=a', '-o', 'name')).toEqual(['lease.coordination.k8s.io/demo'])
    const patch = ['patch', 'lease', 'demo', '--type=json', '-p', '[{"op":"add","path":"/spec/leaseTransitions","value":3}]']
    expect(await run(...patch)).toEqual(['lease.coordination.k8s.io/demo patched'])
    expect(await run('get', 'lease', 'demo', '-o', 'jsonpath={.spec.leaseTransitions}{"\\n"}')).toEqual(['3'])
    expect((await run('apply', '-f', file)).at(-1)).toBe('lease.coordination.k8s.io/demo configured')
    expect(await run('explain', 'lease.spec.holderIdentity')).toContain('FIELD: holderIdentity <string>')
    expect(await run('get', 'namespaces', '-o', 'name')).toEqual(['namespace/default', 'namespace/team'])
    expect(await run('delete', 'lease', 'demo')).toEqual(['lease.coordination.k8s.io "demo" deleted from team namespace'])
    expect((await here.kube('GET', '')).json.items).toEqual([])
  })

  test('kubectl get leases -A -w prints every change', LONG, async context => {
    const clients = await orSkip('kubectl', program(), context)
    const here = await place()
    const { start } = await kubectl(here, clients)
    await here.kube('POST', '', leaseOf('a', { holderIdentity: 'ann', leaseDurationSeconds: 15 }))
    const watching = start('get', 'leases', '-A', '-w')
    await watching.says(/^team +a +ann/)
    await here.kube('POST', '', leaseOf('b', { holderIdentity: 'bob' }))
    await watching.says(/^team +b +bob/)
  })

  test('a kubeconfig with the certificate of the server and a key as its token works over TLS', LONG, async context => {
    const clients = await orSkip('kubectl', program(), context)
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-kubectl-tls-'))
    open.push({
      async [Symbol.asyncDispose]() {
        rmSync(folder, { recursive: true, force: true })
      },
    })
    const [cert, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')]
    const subject = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1']
    await output('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-keyout', key, '-out', cert, ...subject)
    const here = await kubernetesPlace({ tls: { cert, key } })
    open.push(here)
    const token = await here.key('team', [{ verb: 'admin', prefix: 'kubernetes/team' }])
    const cluster = { server: here.url.replace('http:', 'https:'), 'certificate-authority': cert }
    const { run, file } = await kubectl(here, clients, { cluster, user: { token } })
    writeFileSync(file, JSON.stringify(leaseOf('demo', { holderIdentity: 'ann', leaseDurationSeconds: 15 })))
    expect(await run('create', '-f', file)).toEqual(['lease.coordination.k8s.io/demo created'])
    const stranger = await kubectl(here, clients, { cluster, user: { token: 'wrong' } })
    expect(await stranger.run('get', 'leases')).toEqual([])
    expect(await here.holders('demo')).toEqual(['ann'])
  })
})
