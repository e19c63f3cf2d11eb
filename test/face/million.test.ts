/**
 * A million mutations of recorded requests of real clients, through every face, in this process: each is answered in the words of its protocol, whatever a lessor says
 * to it, and none is an internal error. The seed and the count are fixed. What a server and its log make of mutated requests is in mutation.test.ts and
 * in the hostile.test.ts of each face.
 */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { LeaseError } from '../../src/errors.ts'
import { consulFace } from '../../src/face/consul/face.ts'
import { etcdFace } from '../../src/face/etcd/gateway.ts'
import { eurekaFace } from '../../src/face/eureka/face.ts'
import { type Face, type FaceCaller, type HttpFaceResponse, RespFailure, SAME_NAMES } from '../../src/face/face.ts'
import { kubernetesFace } from '../../src/face/kubernetes/kubernetes-face.ts'
import { redisFace } from '../../src/face/redis/commands.ts'
import { HttpFailure } from '../../src/server/http/failure.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { CommandParser, ProtocolError } from '../../src/wire/resp/command-parser.ts'
import { mutated as mutatedRequest, type RecordedRequest } from '../support/http-mutation.ts'
import { instantLessor } from '../support/instant-lessor.ts'
import { requestsIn } from '../support/recorded-face.ts'
import { Dice, mutated } from '../support/resp-mutation.ts'

const SEED = 20_261_116
const MUTATIONS = 1_000_000
const FACES = 5
const EACH = MUTATIONS / FACES
const LONG = { timeout: 900_000 }

function callerOf(dice: Dice): FaceCaller {
  const { signal } = new AbortController()
  return {
    lessor: instantLessor(dice),
    key: 0,
    holder: 'stranger',
    address: '10.0.0.1',
    clock: new ManualClock(),
    names: SAME_NAMES,
    signal,
  }
}

function lines(file: string): readonly unknown[] {
  const text = readFileSync(new URL(file, import.meta.url), 'utf8')
  return text.split('\n').flatMap(line => (line === '' ? [] : [JSON.parse(line)]))
}

/** A request as it was on the wire. */
function asRequest(wire: string): RecordedRequest {
  const [head = '', body = ''] = wire.split('\r\n\r\n')
  const [method = '', target = ''] = head.split(' ')
  return [method, target, body]
}

const HTTP: readonly (readonly [Face, readonly RecordedRequest[]])[] = [
  [etcdFace(), lines('etcd/recorded.jsonl').map(wire => asRequest(wire as string))],
  [
    kubernetesFace(),
    (lines('kubernetes/recording.jsonl') as { method: string; target: string; headers: Record<string, string>; body: string }[]).map(
      ({ method, target, headers, body }) =>
        [method, target, Buffer.from(body, 'base64').toString('latin1'), headers['content-type'] ?? headers.accept ?? ''] as const,
    ),
  ],
  [consulFace(), requestsIn(new URL('consul/recorded.jsonl', import.meta.url))],
  [eurekaFace(), ['recorded', 'by-hand'].flatMap(file => requestsIn(new URL(`eureka/${file}.jsonl`, import.meta.url)))],
]

test('the faces that speak HTTP are four, and one speaks RESP', () => {
  expect(HTTP.length + 1).toBe(FACES)
})

test.each(HTTP)(
  '200,000 mutated requests of $name clients are answered in the words of their protocol',
  LONG,
  async ({ name, http }, corpus) => {
    const dice = new Dice(SEED)
    const caller = callerOf(dice)
    const statuses = new Map<number, number>()
    for (let i = 0; i < EACH; i++) {
      const [method, target, body, type = ''] = mutatedRequest(dice, corpus)
      const said = () => `${name}, number ${i}: ${method} ${target} ${JSON.stringify(body)}`
      const [path = '', query = ''] = target.split('?')
      const bytes = Buffer.from(body, name === 'kubernetes' ? 'latin1' : 'utf8')
      const request = {
        ...{ method, path, query: new URLSearchParams(query), hasBody: bytes.length > 0, secure: false },
        header: (header: string) => (header === 'content-type' || header === 'accept' ? type : undefined),
        body: async () => bytes,
      }
      // Leasehold's own paths, and those of no face, do not come here.
      if (!http!.paths.some(known => (known.endsWith('/') ? path.startsWith(known) : path === known))) continue
      let answer: HttpFaceResponse
      try {
        answer = await http!.answer(request, caller)
      } catch (error) {
        if (!(error instanceof LeaseError || error instanceof HttpFailure)) throw new Error(`${said()}: ${(error as Error)?.stack}`)
        answer = http!.failure({ code: error.code, message: error.message, status: 400, open: true }, request)
      }
      statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
      if (answer.status < 200 || answer.status > 504) expect.fail(`${said()} was answered ${answer.status}`)
      if (typeof answer.body === 'object' && Symbol.asyncIterator in answer.body) await answer.body[Symbol.asyncIterator]().return?.()
    }
    const total = [...statuses.values()].reduce((sum, count) => sum + count, 0)
    const share = (from: number, to: number) =>
      [...statuses].reduce((sum, [status, count]) => sum + (status >= from && status <= to ? count : 0), 0)
    // They are nearly right: many are answered, and many are refused.
    expect(total).toBeGreaterThan(EACH / 3)
    expect(share(200, 299)).toBeGreaterThan(EACH / 50)
    expect(share(400, 499)).toBeGreaterThan(EACH / 50)
  },
)

test('200,000 mutated commands of Redis clients end in a reply or an error of RESP', LONG, async () => {
  const dice = new Dice(SEED)
  const caller = callerOf(dice)
  const corpus = (lines('redis/recorded.jsonl') as readonly string[]).map(text => Buffer.from(text, 'latin1'))
  const commands = new Map(redisFace().commands!.map(command => [command.name, command]))
  const count = { replies: 0, errors: 0, protocol: 0 }
  for (let i = 0; i < EACH; i++) {
    const bytes = mutated(dice, corpus)
    const parser = new CommandParser({ bytes: 1 << 20, args: 1_024 })
    try {
      parser.feed(bytes)
      while (parser.next()) {
        const words = Array.from({ length: parser.count }, (_, at) => parser.text(at))
        const command = commands.get((words[0] ?? '').toUpperCase())
        if (command === undefined || words.includes(undefined)) continue
        if (command.arity >= 0 ? words.length !== command.arity : words.length < -command.arity) continue
        const args = words.slice(1) as string[]
        command.keys?.(args)
        await command.run(args, caller)
        count.replies++
      }
    } catch (error) {
      if (error instanceof ProtocolError) count.protocol++
      else if (error instanceof RespFailure || error instanceof LeaseError) count.errors++
      else throw new Error(`number ${i}, ${JSON.stringify(bytes.toString('latin1'))}: ${(error as Error)?.stack}`)
    }
  }
  expect(count.replies).toBeGreaterThan(EACH / 50)
  expect(count.errors).toBeGreaterThan(EACH / 50)
  expect(count.protocol).toBeGreaterThan(EACH / 50)
})
