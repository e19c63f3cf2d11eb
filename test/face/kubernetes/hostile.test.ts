/**
 * Requests that are nearly right: recordings of client-go, controller-runtime, kubectl and the Python client (recording.jsonl), mutated. Each is answered with an
 * object or a `Status`, never with an internal error; nothing outside the face changes, and what it keeps stays bounded.
 */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { LeaseError } from '../../../src/errors.ts'
import type { HttpFaceRequest, HttpFaceResponse } from '../../../src/face/face.ts'
import { SAME_NAMES } from '../../../src/face/face.ts'
import { kubernetesFace } from '../../../src/face/kubernetes/kubernetes-face.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { kubernetesPlace, leaseOf, type RecordedRequest } from '../../support/kubernetes-place.ts'
import { Dice, SEED } from '../../support/resp-mutation.ts'

/** A million in CI: LEASEHOLD_MUTATIONS=1000000. */
const MUTATIONS = Number(process.env.LEASEHOLD_MUTATIONS ?? 6_000)
/** Every so many are sent over a connection. */
const ON_THE_WIRE = 40
const LONGEST = 64 << 10

const RECORDING: readonly RecordedRequest[] = readFileSync(new URL('recording.jsonl', import.meta.url), 'utf8')
  .trim()
  .split('\n')
  .map(line => JSON.parse(line) as RecordedRequest)

interface HostileRequest {
  readonly method: string
  readonly target: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: Buffer
}

const WORDS = [
  '',
  '0',
  '-1',
  '9'.repeat(20),
  'null',
  '__proto__',
  '%00',
  '%',
  '../..',
  'a'.repeat(300),
  '{"a":',
  '\u2028',
  'NaN',
  'true',
  ',,,',
  '((',
  '!x',
]

function mutatedBytes(dice: Dice, bytes: Buffer): Buffer {
  const at = dice.below(bytes.length + 1)
  switch (dice.below(7)) {
    case 0:
      return bytes.subarray(0, at)
    case 1:
      return Buffer.concat([bytes.subarray(0, at), Buffer.from(dice.of(WORDS)), bytes.subarray(at)])
    case 2:
      return Buffer.concat([bytes, bytes.subarray(at)])
    case 3:
      return Buffer.concat([bytes.subarray(0, at), Buffer.alloc(dice.below(40), dice.below(256)), bytes.subarray(at + dice.below(40))])
    default: {
      const changed = Buffer.from(bytes)
      for (let i = dice.below(4); i >= 0 && changed.length > 0; i--) changed[dice.below(changed.length)] = dice.below(256)
      return changed
    }
  }
}

function mutatedTarget(dice: Dice, target: string): string {
  const [path = '', query = ''] = target.split('?')
  const parts = path.split('/')
  const fields = query === '' ? [] : query.split('&')
  switch (dice.below(5)) {
    case 0:
      parts[1 + dice.below(parts.length)] = encodeURIComponent(dice.of(WORDS))
      break
    case 1:
      parts.splice(dice.below(parts.length), 1)
      break
    case 2:
      fields.push(`${dice.of(QUERIES)}=${encodeURIComponent(dice.of(WORDS))}`)
      break
    case 3:
      if (fields.length > 0)
        fields[dice.below(fields.length)] = `${dice.of(QUERIES)}=${dice.of(['1', 'true', 'All', 'Exact', 'NotOlderThan'])}`
      break
  }
  const changed = parts.join('/')
  return `${changed.startsWith('/api') ? changed : path}${fields.length > 0 ? `?${fields.join('&')}` : ''}`
}

const QUERIES = [
  ...['watch', 'resourceVersion', 'resourceVersionMatch', 'labelSelector', 'fieldSelector', 'limit', 'continue', 'timeoutSeconds'],
  ...['sendInitialEvents', 'allowWatchBookmarks', 'dryRun', 'fieldValidation', 'includeObject'],
]
const TYPES = [
  ...['application/json', 'application/vnd.kubernetes.protobuf', 'application/merge-patch+json', 'application/json-patch+json'],
  ...[
    'application/strategic-merge-patch+json',
    'application/apply-patch+yaml',
    'text/plain',
    '',
    'application/json;as=Table;v=v1;g=meta.k8s.io',
  ],
]

function mutated(dice: Dice, { method, target, headers, body }: RecordedRequest): HostileRequest {
  const bytes = Buffer.from(body, 'base64')
  const changed = {
    method: dice.below(8) === 0 ? dice.of(['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) : method,
    target: dice.below(3) === 0 ? mutatedTarget(dice, target) : target,
    headers: { ...headers },
    body: dice.below(4) === 0 ? bytes : mutatedBytes(dice, bytes),
  }
  if (dice.below(6) === 0) changed.headers['content-type'] = dice.of(TYPES)
  if (dice.below(6) === 0) changed.headers.accept = dice.of(TYPES)
  return changed
}

/** What is wrong with an answer, or undefined. */
function wrongWith({ status, type = 'application/json', body }: HttpFaceResponse): string | undefined {
  if (status === 500 || status < 200 || status > 504) return `the status ${status}`
  if (typeof body !== 'string' && type.startsWith('application/json')) return body === undefined ? 'no body' : undefined
  if (typeof body !== 'string') return undefined
  const { kind } = JSON.parse(body) as { readonly kind?: string }
  return status >= 400 && kind !== 'Status' ? `an error without a Status: ${body.slice(0, 200)}` : undefined
}

test('mutated requests of real clients are answered in the words of Kubernetes, and change nothing else', {
  timeout: 3_600_000,
}, async () => {
  await using here = await kubernetesPlace()
  const dice = new Dice(SEED)
  const bystander = await propose(here.lessor, { kind: 'acquire', holder: 'bystander', ttl: 900_000, wants: [{ resource: 'jobs/other' }] })
  if (bystander.kind !== 'granted') throw new Error('it is granted')
  await here.ask(
    'POST',
    '/apis/coordination.k8s.io/v1/namespaces/bystander/leases',
    leaseOf('b', { holderIdentity: 'ann' }, { namespace: 'bystander' }),
  )
  const http = kubernetesFace().http!
  const statuses = new Map<number, number>()
  for (let i = 0; i < MUTATIONS; i++) {
    const request = mutated(dice, dice.of(RECORDING))
    const said = () =>
      `seed ${SEED}, number ${i}: ${request.method} ${request.target} ${JSON.stringify(request.headers)} ${request.body.toString('base64')}`
    if (request.body.length > LONGEST || request.target.includes('bystander')) continue
    if (i % ON_THE_WIRE === 0 && !request.target.includes('watch=')) {
      const answer = await here.ask(request.method, request.target, request.body, request.headers)
      expect(answer.status, said()).not.toBe(500)
      statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
      continue
    }
    const stop = new AbortController()
    try {
      const answer = await http.answer(asFaceRequest(request), {
        key: 0,
        lessor: here.lessor,
        holder: 'stranger',
        clock: here.clock,
        names: SAME_NAMES,
        signal: stop.signal,
      })
      expect(wrongWith(answer), said()).toBeUndefined()
      statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
      if (typeof answer.body === 'object' && Symbol.asyncIterator in answer.body) {
        const pieces = answer.body[Symbol.asyncIterator]()
        const first = pieces.next()
        stop.abort()
        await first
        await pieces.return?.()
      }
    } catch (error) {
      // A failure with a code is worded by `failure`; anything else would be an internal error.
      if (!(error instanceof LeaseError)) throw new Error(`${said()}: ${String((error as Error).stack)}`)
    } finally {
      stop.abort()
    }
    if (i % 1_000 === 0) await here.clock.advance(1_000)
  }
  expect([...statuses.keys()]).toEqual(expect.arrayContaining([200, 201, 400, 404, 409, 415, 422]))
  const { value: resource } = await here.lessor.read({ kind: 'resource', resource: 'jobs/other' })
  expect(resource.grants.map(({ lease }) => lease)).toEqual([bystander.lease])
  const { value: entries } = await here.lessor.read({ kind: 'entries', prefix: '' })
  expect(entries.filter(({ key }) => !key.startsWith('kubernetes/'))).toEqual([])
  const { json } = await here.ask('GET', '/apis/coordination.k8s.io/v1/namespaces/bystander/leases/b')
  expect(json.spec.holderIdentity).toBe('ann')
  expect(({} as { polluted?: unknown }).polluted).toBeUndefined()
})

function asFaceRequest({ method, target, headers, body }: HostileRequest): HttpFaceRequest {
  const mark = target.indexOf('?')
  return {
    method,
    path: mark < 0 ? target : target.slice(0, mark),
    query: new URLSearchParams(mark < 0 ? '' : target.slice(mark + 1)),
    header: name => headers[name],
    hasBody: body.length > 0,
    secure: false,
    body: async () => body,
  }
}

test('bodies that are too large, in JSON and in protobuf, and foreign credentials get a Status, and the next request is answered', async () => {
  await using here = await kubernetesPlace()
  const path = '/apis/coordination.k8s.io/v1/namespaces/team/leases'
  for (const type of ['application/json', 'application/vnd.kubernetes.protobuf']) {
    const large = await here.ask('POST', path, Buffer.alloc(4 << 20, 0x0a), { 'content-type': type })
    expect([large.status, large.json.kind, large.json.reason]).toEqual([413, 'Status', 'RequestEntityTooLarge'])
    const nested = await here.ask('POST', path, Buffer.from(`${'[1,'.repeat(20_000)}`), { 'content-type': type })
    expect([nested.status, nested.json.reason]).toEqual([400, 'BadRequest'])
  }
  // Many small fields of a list, one byte each: what they cost grows with their number, not with its square.
  const many = Buffer.concat([
    Buffer.from('k8s\0\x0a\x07\x12\x05Lease\x12', 'latin1'),
    Buffer.from([0xe4, 0xab, 0x03, 0x0a, 0xe0, 0xab, 0x03]),
    Buffer.from('r\0'.repeat(27_376), 'latin1'),
  ])
  expect((await here.ask('POST', path, many, { 'content-type': 'application/vnd.kubernetes.protobuf' })).status).toBeGreaterThanOrEqual(400)
  await here.key('team', [{ verb: 'admin', prefix: 'kubernetes' }])
  for (const authorization of ['Bearer eyJhbGciOiJSUzI1NiJ9.e30.x', 'Basic dXNlcjpwYXNz', 'Bearer', `Bearer ${'x'.repeat(5_000)}`]) {
    const refused = await here.ask('GET', path, undefined, { authorization })
    expect([refused.status, refused.json]).toEqual([401, expect.objectContaining({ kind: 'Status', reason: 'Unauthorized', code: 401 })])
  }
})
