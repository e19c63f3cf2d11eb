/** Real clients of etcd's JSON gateway, unmodified, on the real wire: etcd3gw, and Patroni with a Postgres cluster of two nodes. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { etcdFace } from '../../../src/face/etcd/gateway.ts'
import { httpListener } from '../../../src/server/http/http-listener.ts'
import { etcdPython, patroni } from '../../support/client-sets.ts'
import { describeEngine, find, freePorts, unprivilegedUser } from '../../support/engine.ts'
import { orSkip, python, recorded } from '../../support/foreign-clients.ts'
import { type Place, place } from '../../support/resp-place.ts'

const RECORDED = 'test/face/etcd/recorded.jsonl'
const LONG = { timeout: 900_000 }

const open = (): Promise<Place> => place({ faces: [etcdFace()], http: httpListener() })

describe('etcd3gw', () => {
  test('puts, gets, deletes, watches, locks and keeps leases', LONG, async context => {
    const interpreter = await orSkip('etcd3gw', etcdPython(), context)
    await using here = await open()
    await using door = await recorded(here.port, RECORDED)
    const said = await python(
      interpreter,
      `
import sys, queue
from etcd3gw.client import Etcd3Client
client = Etcd3Client(port=int(sys.argv[1]), api_path='/v3/')
print(client.status()['version'].split('.')[0], len(client.members()))
print(client.put('jobs/a', 'one'), client.get('jobs/a'), client.get('none'))
client.put('jobs/b', bytes([255, 0]))
print([(value, meta['key']) for value, meta in client.get_prefix('jobs/', sort_order='descend', sort_target='key')])
print(client.replace('jobs/a', 'one', 'two'), client.replace('jobs/a', 'one', 'three'), client.create('jobs/a', 'x'), client.create('jobs/c', 'y'))
print(client.delete('jobs/c'), client.delete('jobs/c'), client.delete_prefix('none/'))
events = queue.Queue()
from etcd3gw.watch import Watcher
watcher = Watcher(client, 'jobs/a', events.put)
import time
while True:
    client.put('jobs/a', 'seen')
    try:
        event = events.get(timeout=1)
        break
    except queue.Empty:
        pass
print(event['kv']['key'], event['kv']['value'])
watcher.stop()
lease = client.lease(ttl=60)
client.put('leased', 'v', lease=lease)
print(lease.refresh(), lease.ttl() > 50, lease.keys())
print(lease.revoke(), client.get('leased'))
lock = client.lock(id='nightly', ttl=60)
other = client.lock(id='nightly', ttl=60)
print(lock.acquire(), other.acquire(), lock.is_acquired(), other.is_acquired(), lock.refresh())
print(other.release(), lock.release(), other.acquire(), other.release())
`,
      String(door.port),
    )
    expect(said.trim().split('\n')).toEqual([
      '3 1',
      "True [b'one'] []",
      "[(b'\\xff\\x00', b'jobs/b'), (b'one', b'jobs/a')]",
      'True False False True',
      'True False False',
      "b'jobs/a' b'seen'",
      "60 True [b'leased']",
      'True []',
      'True False True False 60',
      'False True True True',
    ])
    const { value } = await here.lessor.read({ kind: 'entries', prefix: 'etcd/jobs' })
    expect(value.map(({ key }) => key)).toEqual(['etcd/jobs/a', 'etcd/jobs/b'])
  })
})

/** One node of a Postgres cluster that Patroni runs. Postgres refuses root, so both run as another user there. */
class PatroniNode implements AsyncDisposable {
  readonly name: string
  readonly rest: number
  readonly postgres: number
  readonly #data: string
  readonly #log: string
  readonly #child: ChildProcess

  constructor(interpreter: string, folder: string, name: string, etcd: number, [rest, postgres]: readonly [number, number]) {
    this.name = name
    this.rest = rest
    this.postgres = postgres
    this.#data = join(folder, name)
    this.#log = join(folder, `${name}.log`)
    const file = join(folder, `${name}.yml`)
    writeFileSync(file, JSON.stringify(this.#settings(etcd)))
    const log = openSync(this.#log, 'w')
    const [program, ...args] = [...asPostgresUser(), interpreter, '-m', 'patroni', file]
    this.#child = spawn(program!, args, {
      stdio: ['ignore', log, log],
      cwd: folder,
      env: { PATH: process.env.PATH, LC_ALL: 'C', HOME: folder },
    })
    closeSync(log)
  }

  /** JSON is YAML. */
  #settings(etcd: number): object {
    const user = (username: string) => ({ username, password: 'secret' })
    const parameters = { unix_socket_directories: '', shared_buffers: '16MB', max_connections: 20, fsync: 'off' }
    const hba = ['host all all 127.0.0.1/32 md5', 'host replication replicator 127.0.0.1/32 md5']
    return {
      scope: 'cluster',
      name: this.name,
      restapi: { listen: `127.0.0.1:${this.rest}`, connect_address: `127.0.0.1:${this.rest}` },
      etcd3: { host: `127.0.0.1:${etcd}` },
      bootstrap: {
        dcs: { ttl: 20, loop_wait: 1, retry_timeout: 5, postgresql: { use_pg_rewind: false, parameters } },
        initdb: [{ encoding: 'UTF8' }, { locale: 'C' }, 'no-sync'],
      },
      postgresql: {
        listen: `127.0.0.1:${this.postgres}`,
        connect_address: `127.0.0.1:${this.postgres}`,
        data_dir: this.#data,
        bin_dir: dirname(find('postgres')!),
        pg_hba: hba,
        parameters,
        authentication: { superuser: user('postgres'), replication: user('replicator') },
      },
    }
  }

  get log(): string {
    return readFileSync(this.#log, 'utf8').slice(-4_000)
  }

  /** Waits until the node says that it is the primary, or a replica. Patroni calls it the primary before its Postgres has left recovery and takes writes. */
  async is(role: 'primary' | 'replica', within = 150_000): Promise<void> {
    for (const until = performance.now() + within; performance.now() < until; await sleep(200)) {
      if (this.#child.exitCode !== null) break
      const answer = await fetch(`http://127.0.0.1:${this.rest}/${role}`).catch(() => undefined)
      if (answer?.status === 200 && (role === 'replica' || (await this.#takesWrites()))) return
    }
    throw new Error(`${this.name} is no ${role} after ${within} ms: ${this.log}`)
  }

  async #takesWrites(): Promise<boolean> {
    const rows = await this.query('select pg_is_in_recovery() as recovering').catch(() => [])
    return (rows[0] as { readonly recovering: boolean } | undefined)?.recovering === false
  }

  async query(text: string): Promise<readonly unknown[]> {
    const client = new pg.Client({ host: '127.0.0.1', port: this.postgres, user: 'postgres', password: 'secret', database: 'postgres' })
    client.on('error', () => {})
    await client.connect()
    try {
      return (await client.query(text)).rows
    } finally {
      await client.end()
    }
  }

  /** Kills Patroni and its Postgres, as a crash of the machine does. */
  async kill(): Promise<void> {
    const pids = [this.#child.pid!]
    const file = join(this.#data, 'postmaster.pid')
    if (existsSync(file)) pids.push(Number(readFileSync(file, 'utf8').split('\n')[0]))
    const ended = this.#child.exitCode === null && this.#child.signalCode === null ? once(this.#child, 'exit') : undefined
    for (const pid of pids)
      try {
        process.kill(pid, 'SIGKILL')
      } catch {
        // it has ended by itself
      }
    await ended
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill()
  }
}

/** The user that Postgres runs as may not enter the folder of the clients if that belongs to root: it keeps the one right that this needs. */
function asPostgresUser(): readonly string[] {
  if (process.getuid?.() !== 0) return []
  const { uid, gid } = unprivilegedUser()
  const right = '+dac_override'
  return ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', `--inh-caps=${right}`, `--ambient-caps=${right}`]
}

describeEngine('postgres', 'Patroni', () => {
  test('keeps a Postgres cluster of two nodes, and fails over when its leader is killed', LONG, async context => {
    const interpreter = await orSkip('Patroni', patroni(), context)
    await using here = await open()
    await using door = await recorded(here.port, RECORDED)
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-patroni-'))
    if (process.getuid?.() === 0) chownSync(folder, unprivilegedUser().uid, unprivilegedUser().gid)
    try {
      const ports = await freePorts(4)
      await using one = new PatroniNode(interpreter, folder, 'one', door.port, [ports[0]!, ports[1]!])
      await one.is('primary')
      await using two = new PatroniNode(interpreter, folder, 'two', door.port, [ports[2]!, ports[3]!])
      await two.is('replica')
      await one.query('create table kept (n int)')
      await one.query('insert into kept values (1)')
      // The replica has the row before the leader dies: replication is asynchronous.
      const rows = () => two.query('select n from kept').catch(() => [])
      await expect.poll(rows).toEqual([{ n: 1 }])
      const leader = async () => (await here.lessor.read({ kind: 'entries', prefix: 'etcd/%/service/cluster/leader' })).value
      expect(await leader()).toMatchObject([{ value: 'one', status: 'live' }])
      await one.kill()
      await two.is('primary')
      expect(await leader()).toMatchObject([{ value: 'two' }])
      await two.query('insert into kept values (2)')
      expect(await rows()).toEqual([{ n: 1 }, { n: 2 }])
    } finally {
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
    }
  })
})
