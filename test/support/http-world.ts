/** A real server for HTTP tests: on a free loopback port, over a log in memory with a manual clock, with a function that sends any request. */
import { Agent, request } from 'node:http'
import type { Scope } from '../../src/kernel/command.ts'
import type { Lessor } from '../../src/lessor.ts'
import { Replica } from '../../src/replica/replica.ts'
import type { AuditRecord } from '../../src/server/guarded-lessor.ts'
import { type HttpOptions, httpListener } from '../../src/server/http/http-listener.ts'
import { hashSecret } from '../../src/server/key-secret.ts'
import { type ServeOptions, type Server, serve } from '../../src/server/serve.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

export interface Reply {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly text: string
  // biome-ignore lint/suspicious/noExplicitAny: the test checks the shape
  readonly json: any
}

export interface World extends AsyncDisposable {
  readonly clock: ManualClock
  readonly lessor: Lessor
  readonly server: Server
  readonly port: number
  readonly url: string
  readonly audited: AuditRecord[]
  ask(method: string, path: string, body?: unknown, headers?: Readonly<Record<string, string>>): Promise<Reply>
  /** Creates a key with these scopes. Returns its secret. */
  key(name: string, allow: readonly Scope[]): Promise<string>
}

export async function world(
  options: Partial<ServeOptions> & { readonly httpOptions?: HttpOptions; readonly events?: number } = {},
): Promise<World> {
  const clock = new ManualClock()
  const { httpOptions = {}, events, ...more } = options
  const lessor = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), {
    clock,
    ...(events !== undefined && { events }),
  })
  const audited: AuditRecord[] = []
  const server = await serve({
    lessor,
    clock,
    listen: '127.0.0.1:0',
    http: httpListener(httpOptions),
    audit: record => audited.push(record),
    figures: () => lessor.figures,
    ...more,
  })
  const port = Number(server.addresses[0]!.split(':').at(-1))
  const agent = new Agent({ keepAlive: true })
  return {
    clock,
    lessor,
    server,
    port,
    audited,
    url: `http://127.0.0.1:${port}`,
    ask: (method, path, body, headers = {}) => ask(port, agent, method, path, body, headers),
    async key(name, allow) {
      const secret = `secret of ${name}`.replaceAll(' ', '-')
      await server.guarded.propose({ key: 0, name: 'test', operator: true }, { kind: 'key', name, hash: hashSecret(secret), allow })
      return secret
    },
    async [Symbol.asyncDispose]() {
      agent.destroy()
      await server.close()
      await lessor[Symbol.asyncDispose]()
    },
  }
}

/** Sends a text or bytes as they are, anything else as JSON. The target is sent unchanged. */
export function ask(
  port: number,
  agent: Agent | undefined,
  method: string,
  path: string,
  body?: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<Reply> {
  const text = body === undefined || typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body)
  return new Promise((resolve, reject) => {
    const asked = request(
      {
        ...{ port, method, path, ...(agent && { agent }) },
        host: '127.0.0.1',
        headers: {
          ...(text !== undefined && { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
          ...headers,
        },
      },
      reply => {
        const chunks: Buffer[] = []
        reply.on('data', chunk => chunks.push(chunk))
        reply.on('error', () => {})
        // A stream has no end: its first chunk is enough.
        if (reply.headers['content-type']?.startsWith('text/event-stream')) reply.once('data', () => reply.destroy())
        reply.on('close', () => {
          const text = Buffer.concat(chunks).toString()
          resolve({
            status: reply.statusCode!,
            headers: reply.headers,
            text,
            get json() {
              return JSON.parse(text)
            },
          })
        })
      },
    )
    asked.on('error', reject)
    asked.end(text)
  })
}
