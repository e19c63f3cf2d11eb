/** Mistakes of the wires, planted into the real clients and servers (see planted.ts). */
import type { Planted } from './planted-mistake.ts'

const resp = ['resp'] as const
const http = ['http'] as const

export const WIRE_BUGS: readonly Planted[] = [
  {
    name: 'a request on a broken connection is repeated without its operation (jetcd)',
    file: 'src/wire/resp/pending-requests.js',
    find: 'this.#fail(request, request.unanswered(error.message, error));',
    put: '{ request.message = { ...request.message, proposal: { ...request.message.proposal, op: undefined } }; this.#askAgain(request); }',
    expected: ['S11'],
    profiles: resp,
  },
  {
    name: 'a request on a broken connection is reported as certainly not done',
    file: 'src/wire/resp/pending-requests.js',
    find: 'this.#fail(request, request.unanswered(error.message, error));',
    put: 'this.#fail(request, error);',
    expected: ['S12'],
    profiles: resp,
  },
  {
    name: 'a watch that reconnects continues with the next event only',
    file: 'src/wire/resp/subscriptions.js',
    find: 'prefix, ...(after !== undefined && { after }), ',
    put: 'prefix, ',
    expected: ['S13'],
    profiles: resp,
  },
  {
    name: 'answers are matched to requests by order',
    file: 'src/wire/resp/pending-requests.js',
    find: 'answered(id, kind, answer) {\n        const request = this.#pending.get(id);',
    put: 'answered(id, kind, answer) {\n        const request = [...this.#pending.values()].find(({ message }) => message.kind === "propose") ?? this.#pending.get(id);',
    expected: ['S11'],
    profiles: resp,
  },
  {
    name: 'an HTTP request that was broken off is reported as certainly not done',
    file: 'src/wire/http/connection.js',
    find: 'changes && (answered || !neverReached(error))',
    put: 'false',
    expected: ['S12'],
    profiles: http,
  },
  {
    name: 'an HTTP request that was broken off is repeated with new operations',
    file: 'src/wire/http/client.js',
    find: "(await this.#connection.json('POST', '/v1/propose', { body, changes: true }))",
    put: `(await this.#connection.json('POST', '/v1/propose', { body, changes: true }).catch(() => this.#connection.json('POST', '/v1/propose', { body: body.replaceAll('"session":"', '"session":"again-'), changes: true })))`,
    expected: ['S11'],
    profiles: http,
  },
  {
    name: 'an event stream is resumed one revision too late',
    file: 'src/wire/http/client.js',
    find: '{ after: String(from) }',
    put: '{ after: String(from + (from === after ? 0 : 1)) }',
    expected: ['S13'],
    profiles: http,
  },
  {
    name: 'a revision is delivered before it is complete',
    file: 'src/wire/http/event-stream.js',
    find: 'if (id !== String(event.revision))',
    put: 'if (false)',
    expected: ['S13'],
    profiles: http,
  },
]
