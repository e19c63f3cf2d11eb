/**
 * Records what real clients ask a face that speaks HTTP, for the tests that send mutated requests. To record anew, delete the file and run the tests of the
 * clients: LEASEHOLD_RECORD=1 npx vitest run test/face/consul/clients.test.ts
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { gunzipSync } from 'node:zlib'
import type { Face } from '../../src/face/face.ts'
import type { RecordedRequest } from './http-mutation.ts'

const MAX_REQUESTS = 150
const UUID = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g

/** The same face; with LEASEHOLD_RECORD, one that adds each new kind of request to the file. */
export function recordedFace(face: Face, file: URL): Face {
  if (process.env.LEASEHOLD_RECORD === undefined) return face
  const http = face.http!
  const known = existsSync(file) ? [...requestsIn(file)] : []
  const shapes = new Set(known.map(shapeOf))
  return {
    ...face,
    http: {
      ...http,
      async answer(request, caller) {
        const bytes = await request.body()
        const body = request.header('content-encoding') === 'gzip' ? gunzipSync(bytes) : Buffer.from(bytes)
        const query = request.query.size > 0 ? `?${request.query}` : ''
        const recorded: RecordedRequest = [
          request.method,
          withoutSession(request.path + query),
          body.toString('utf8'),
          request.header('content-type') ?? request.header('accept') ?? '',
        ]
        const shape = shapeOf(recorded)
        if (!shapes.has(shape) && known.length < MAX_REQUESTS) {
          shapes.add(shape)
          known.push(recorded)
          writeFileSync(file, known.map(each => `${JSON.stringify(each)}\n`).join(''))
        }
        return http.answer(request, caller)
      },
    },
  }
}

/** The requests of a recording. */
export function requestsIn(file: URL): readonly RecordedRequest[] {
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter(line => line !== '')
    .map(line => JSON.parse(line) as RecordedRequest)
}

/** The test that sends the request puts a session of its own here, but none that the request would end. */
function withoutSession(target: string): string {
  return target.includes('/destroy/') ? target : target.replaceAll(UUID, '$SESSION')
}

/** Returns what stays the same when a client sends the same kind of request again. */
function shapeOf([method, target, body]: RecordedRequest): string {
  return `${method} ${target} ${body}`.replaceAll(UUID, '#').replaceAll(/\d+/g, '0')
}
