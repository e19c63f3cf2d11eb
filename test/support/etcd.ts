/** Operator actions and accidents on etcd: backup, compaction, lost records and lost answers. */
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer as createHttpServer, type Server as HttpServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import type { LinkFailure } from '../../src/testing/store-suite.ts'
import { EVENT_TIMEOUT } from './bounds.ts'
import type { Engine, Member } from './engine.ts'

export async function asked<T>(port: number, path: string, body: object = {}): Promise<T> {
  const response = await fetch(`http://127.0.0.1:${port}/v3${path}`, {
    method: 'POST',
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(5_000),
  })
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`)
  return (await response.json()) as T
}

/** The leader, once all members agree on it. */
export async function leader(engine: Engine): Promise<Member> {
  for (const until = Date.now() + EVENT_TIMEOUT; Date.now() < until; await sleep(50)) {
    const results = await Promise.allSettled(
      engine.members.filter(({ running }) => running).map(async member => ({ member, ...(await status(member.port)) })),
    )
    const answers = results.flatMap(answer => (answer.status === 'fulfilled' ? [answer.value] : []))
    const leading = answers.find(({ id, leader }) => id === leader && answers.every(other => other.leader === id))
    if (leading && answers.length * 2 > engine.members.length) return leading.member
  }
  throw new Error('no leader')
}

async function status(port: number): Promise<{ id: string; leader: string }> {
  const { header, leader } = await asked<{ header: { member_id: string }; leader?: string }>(port, '/maintenance/status')
  return { id: header.member_id, leader: leader ?? 'none' }
}

const run = promisify(execFile)

/** A backup of a single member by `etcdctl`. Restoring it loses everything since, and revisions continue from the backup. */
export async function backup(etcd: Engine): Promise<AsyncDisposable & { restore(): Promise<void> }> {
  const [member] = etcd.members as [Member]
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-backup-'))
  const file = join(folder, 'backup')
  const env = { ...process.env, ETCDCTL_API: '3' }
  await run('etcdctl', ['--endpoints', `http://127.0.0.1:${member.port}`, 'snapshot', 'save', file], { env })
  const args = (await readFile(`/proc/${member.pid}/cmdline`, 'utf8')).split('\0')
  const setting = (name: string): [string, string] => [name, args[args.indexOf(name) + 1]!]
  const [, data] = setting('--data-dir')
  const same = ['--name', '--data-dir', '--initial-cluster', '--initial-cluster-token', '--initial-advertise-peer-urls'].flatMap(setting)
  return {
    async restore() {
      await etcd.stop()
      await rm(data, { recursive: true })
      await run('etcdctl', ['snapshot', 'restore', file, ...same], { env })
      await etcd.restart()
    },
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true }),
  }
}

/** Compacts at once, as auto-compaction would later. */
export async function compact(engine: Engine): Promise<void> {
  for (const port of engine.ports) {
    const { header } = await asked<{ header: { revision: string } }>(port, '/kv/range', { key: base64('x') })
    await asked(port, '/kv/compaction', { revision: header.revision, physical: true })
    return
  }
}

export class LogInEtcd {
  readonly #etcd: Engine
  readonly #name: string

  constructor(etcd: Engine, name: string) {
    this.#etcd = etcd
    this.#name = name
  }

  async keys(below = ''): Promise<string[]> {
    const request = { ...prefixed(`${this.#name}:${below}`), keys_only: true }
    const { kvs = [] } = await asked<{ kvs?: { key: string }[] }>(this.#etcd.port, '/kv/range', request)
    return kvs.map(({ key }) => Buffer.from(key, 'base64').toString())
  }

  /** Removes the last records, like a cluster restored from an older backup. The start of the log is not a record. */
  async loseTail(count: number): Promise<void> {
    const records = (await this.keys('log/')).filter(key => !key.includes('/0000000000000000.'))
    for (const key of records.slice(-count)) await asked(this.#etcd.port, '/kv/deleterange', { key: base64(key) })
  }

  /** Puts a value of this size. Resolves to whether etcd accepted it. */
  async fill(number: number, bytes: number): Promise<boolean> {
    const request = { key: base64(`${this.#name}:${number}`), value: base64('x'.repeat(bytes)) }
    return asked(this.#etcd.port, '/kv/put', request).then(
      () => true,
      () => false,
    )
  }

  async deleteAll(): Promise<void> {
    await asked(this.#etcd.port, '/kv/deleterange', prefixed(`${this.#name}:`))
  }
}

/** A proxy to etcd that cuts off the answer to one request: the request is carried out, and its client does not learn that. */
export class Scissors implements AsyncDisposable {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #text: string | undefined
  #cut = false

  private constructor(target: number) {
    this.#server = createServer(near => {
      const far = connect({ host: '127.0.0.1', port: target })
      let cutting = false
      near.on('data', bytes => {
        if (this.#text !== undefined && bytes.includes(this.#text)) {
          cutting = true
          this.#text = undefined
        }
        far.write(bytes)
      })
      far.on('data', bytes => {
        if (!cutting) return near.write(bytes)
        this.#cut = true
        return near.destroy()
      })
      for (const socket of [near, far]) {
        this.#sockets.add(socket)
        socket.on('error', () => {})
        socket.on('close', () => {
          this.#sockets.delete(socket)
          near.destroy()
          far.destroy()
        })
      }
    })
  }

  static async to(target: number): Promise<Scissors> {
    const scissors = new Scissors(target)
    scissors.#server.listen(0, '127.0.0.1')
    await once(scissors.#server, 'listening')
    return scissors
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** Returns whether an answer has been cut off since `cutPut`: the request was carried out. */
  get cut(): boolean {
    return this.#cut
  }

  /** Cuts off the answer to the next request that puts this key. */
  cutPut(key: string): void {
    this.#cut = false
    this.#text = `"request_put":{"key":"${base64(key)}"`
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    await new Promise(resolve => this.#server.close(resolve))
  }
}

/**
 * A proxy to etcd that loses one answer, passes a few more and then refuses. Each connection carries one request: on a reused connection a
 * client cannot tell a refused request from one whose answer was lost.
 */
export class Lossy implements AsyncDisposable {
  readonly #target: number
  readonly #server: HttpServer
  #failure: LinkFailure | undefined

  private constructor(target: number) {
    this.#target = target
    this.#server = createHttpServer((request, response) => void this.#pass(request, response))
  }

  static async to(target: number): Promise<Lossy> {
    const lossy = new Lossy(target)
    lossy.#server.listen(0, '127.0.0.1')
    await once(lossy.#server, 'listening')
    return lossy
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  fail(failure: LinkFailure): void {
    this.#failure = failure
  }

  async #pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const pieces: Buffer[] = []
    for await (const piece of request) pieces.push(piece)
    response.setHeader('connection', 'close')
    if (this.#failure?.end === 'forbidden' && this.#over(this.#failure))
      return void response
        .writeHead(403)
        .end('{"error":"etcdserver: permission denied","code":7,"message":"etcdserver: permission denied"}')
    const { authorization } = request.headers
    const answer = await fetch(`http://127.0.0.1:${this.#target}${request.url}`, {
      method: request.method!,
      ...(pieces.length > 0 && { body: Buffer.concat(pieces) }),
      ...(authorization !== undefined && { headers: { authorization } }),
    })
    const text = await answer.text()
    if (this.#failure?.before === 0) {
      this.#failure = { ...this.#failure, before: -1 }
      request.socket.destroy()
    } else {
      if (this.#failure !== undefined) {
        const { before, after } = this.#failure
        this.#failure = { ...this.#failure, ...(before > 0 ? { before: before - 1 } : { after: after - 1 }) }
      }
      response.writeHead(answer.status).end(text)
    }
    if (this.#failure?.end === 'disconnected' && this.#over(this.#failure)) this.#server.close()
  }

  #over({ before, after }: LinkFailure): boolean {
    return before < 0 && after <= 0
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections()
    if (this.#server.listening) await new Promise(resolve => this.#server.close(resolve))
  }
}

function prefixed(prefix: string): { key: string; range_end: string } {
  return { key: base64(prefix), range_end: base64(`${prefix}~`) }
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}
