/** A server with the Kubernetes face, with functions for the requests that tests send. */
import { appendFileSync } from 'node:fs'
import { request } from 'node:http'
import type { Face } from '../../src/face/face.ts'
import { kubernetesFace } from '../../src/face/kubernetes/kubernetes-face.ts'
import { type Reply, type World, world } from './http-world.ts'

const LEASES = '/apis/coordination.k8s.io/v1/namespaces/team/leases'

/** A Lease of the namespace `team`. */
export function leaseOf(name: string, spec: object = {}, metadata: object = {}): object {
  return { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name, namespace: 'team', ...metadata }, spec }
}

export interface KubernetesPlace extends World {
  /** Sends a request about the Leases of `team`; `path` begins after them. */
  kube(method: string, path: string, body?: unknown, headers?: Readonly<Record<string, string>>): Promise<Reply>
  /** The holders of the resource of an object. */
  holders(name: string): Promise<readonly string[]>
  /** Opens a watch. `next` is the next line of its answer, parsed. */
  watch(path: string, headers?: Readonly<Record<string, string>>): Promise<OpenWatch>
}

export interface OpenWatch extends AsyncDisposable {
  readonly status: number
  // biome-ignore lint/suspicious/noExplicitAny: the test checks the shape
  next(): Promise<any>
  /** All bytes, when the server has ended the watch. */
  rest(): Promise<Buffer>
}

export async function kubernetesPlace(options: Parameters<typeof world>[0] = {}): Promise<KubernetesPlace> {
  const place = await world({ faces: [recording(kubernetesFace())], ...options })
  return Object.assign(place, {
    kube: (method: string, path: string, body?: unknown, headers?: Readonly<Record<string, string>>) =>
      place.ask(method, LEASES + path, body, headers),
    holders: async (name: string) =>
      (await place.lessor.read({ kind: 'resource', resource: `kubernetes/team/${name}` })).value.grants.map(({ holder }) => holder),
    watch: (path: string, headers: Readonly<Record<string, string>> = {}) => openWatch(place.port, path, headers),
  })
}

/** A request of a real client, as test/face/kubernetes/recording.jsonl has it. */
export interface RecordedRequest {
  readonly method: string
  readonly target: string
  readonly headers: Readonly<Record<string, string>>
  /** In base64. */
  readonly body: string
}

const RECORDED_HEADERS = ['accept', 'content-type', 'accept-encoding', 'user-agent']
/** To record the requests of real clients anew: LEASEHOLD_RECORD=FILE npx vitest run test/face/kubernetes/clients.test.ts */
const RECORD_TO = process.env.LEASEHOLD_RECORD

function recording(face: Face): Face {
  if (RECORD_TO === undefined) return face
  const http = face.http!
  return {
    ...face,
    http: {
      ...http,
      async answer(request, caller) {
        const bytes = await request.body()
        const query = request.query.size > 0 ? `?${request.query}` : ''
        const headers = RECORDED_HEADERS.flatMap(name => (request.header(name) === undefined ? [] : [[name, request.header(name)!]]))
        const recorded: RecordedRequest = {
          method: request.method,
          target: request.path + query,
          headers: Object.fromEntries(headers),
          body: Buffer.from(bytes).toString('base64'),
        }
        appendFileSync(RECORD_TO, `${JSON.stringify(recorded)}\n`)
        return http.answer(request, caller) // a body is read once, and kept
      },
    },
  }
}

function openWatch(port: number, path: string, headers: Readonly<Record<string, string>>): Promise<OpenWatch> {
  return new Promise((resolve, reject) => {
    const asked = request({ host: '127.0.0.1', port, path, headers }, reply => {
      const lines = linesOf(reply)
      resolve({
        status: reply.statusCode!,
        next: async () => JSON.parse((await lines.next()).value as string),
        rest: async () => {
          const chunks: Buffer[] = []
          for await (const chunk of reply) chunks.push(chunk as Buffer)
          return Buffer.concat(chunks)
        },
        async [Symbol.asyncDispose]() {
          asked.destroy()
        },
      })
    })
    asked.on('error', reject)
    asked.end()
  })
}

async function* linesOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<string, void, void> {
  let text = ''
  for await (const chunk of chunks) {
    text += chunk.toString()
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n')) {
      yield text.slice(0, end)
      text = text.slice(end + 1)
    }
  }
}
