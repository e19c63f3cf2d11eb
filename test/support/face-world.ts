/** The HTTP part of a face without a server: over a log in memory with a manual clock, with a lessor that the test may let fail. */
import type { Face, FaceCaller, FaceLessor, HttpFaceRequest } from '../../src/face/face.ts'
import { SAME_NAMES } from '../../src/face/face.ts'
import { Replica } from '../../src/replica/replica.ts'
import { setFaceRules } from '../../src/server/face-rules.ts'
import { failureResponse } from '../../src/server/http/failure.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

export interface FaceReply {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly text: string
  // biome-ignore lint/suspicious/noExplicitAny: the test checks the shape
  readonly json: any
}

export interface AskOptions {
  readonly headers?: Readonly<Record<string, string>>
  readonly lessor?: FaceLessor
  readonly signal?: AbortSignal
}

export interface FaceWorld extends AsyncDisposable {
  readonly clock: ManualClock
  readonly lessor: Replica
  ask(method: string, target: string, body?: unknown, options?: AskOptions): Promise<FaceReply>
}

export async function faceWorld(face: Face, names = SAME_NAMES): Promise<FaceWorld> {
  const clock = new ManualClock()
  const lessor = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
  await setFaceRules(lessor, [face])
  return {
    clock,
    lessor,
    async ask(method, target, body, { headers = {}, lessor: used = lessor, signal = new AbortController().signal } = {}) {
      const [path = '', query = ''] = target.split('?')
      const bytes =
        body === undefined
          ? new Uint8Array(0)
          : body instanceof Uint8Array
            ? body
            : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))
      const request: HttpFaceRequest = {
        method,
        path,
        query: new URLSearchParams(query),
        header: name => headers[name],
        hasBody: bytes.length > 0,
        secure: false,
        body: async () => bytes,
      }
      const caller: FaceCaller = { lessor: used, key: 0, holder: 'client', address: '10.1.1.1', clock, names, signal }
      const answered = await Promise.resolve(face.http!.answer(request, caller)).catch((error: unknown) => {
        const { status, code, body: said } = failureResponse(error)
        // An internal error is a mistake of the face.
        if (code === 'UNKNOWN' && status === 500) throw error
        return face.http!.failure({ code: code!, message: JSON.parse(said as string).error.message, status, open: true }, request)
      })
      const text = Buffer.from((answered.body ?? '') as string).toString()
      return {
        status: answered.status,
        headers: answered.headers ?? {},
        text,
        get json() {
          return JSON.parse(text)
        },
      }
    },
    [Symbol.asyncDispose]: () => lessor[Symbol.asyncDispose](),
  }
}
