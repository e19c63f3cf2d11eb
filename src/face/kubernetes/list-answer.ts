/** Lists of Leases: which part of a list a client asks for, and the answer, which is made in slices. */
import type { FaceCaller, HttpFaceRequest, HttpFaceResponse } from '../face.ts'
import { joined, mapInSlices } from '../slices.ts'
import { type KubeLease, keyOf, type ObjectName } from './lease-object.ts'
import { encodeItem, encodeList, hasProtobuf } from './messages.ts'
import { type AnswerForm, answerBody, JSON_TYPE, PROTOBUF_TYPE, wantsGzip } from './negotiation.ts'
import type { JsonObject } from './protobuf.ts'
import { badRequest } from './status.ts'

interface ListAnswer {
  /** The list without its items: the last field is an empty list. */
  readonly head: object
  readonly items: readonly KubeLease[]
  /** An item in JSON. @default as it is */
  readonly shown: ((lease: KubeLease) => object) | undefined
  readonly headers: Readonly<Record<string, string>>
}

export async function answerList(
  request: HttpFaceRequest,
  caller: FaceCaller,
  { type }: AnswerForm,
  { head, items, shown = lease => lease, headers }: ListAnswer,
): Promise<HttpFaceResponse> {
  const { kind } = head as { readonly kind: string }
  if (type === PROTOBUF_TYPE && hasProtobuf(kind)) {
    const parts = await mapInSlices(caller, items, lease => encodeItem(kind, lease))
    return answerBody(request, 200, encodeList(head as JsonObject, parts), PROTOBUF_TYPE, headers)
  }
  const texts = await mapInSlices(caller, items, lease => JSON.stringify(shown(lease)))
  const before = JSON.stringify(head).slice(0, -2)
  const body = joined(texts, before, ']}')
  if (typeof body !== 'string' && !wantsGzip(request)) return { status: 200, type: JSON_TYPE, headers, body }
  return answerBody(request, 200, typeof body === 'string' ? body : `${before}${texts.join(',')}]}`, JSON_TYPE, headers)
}

/** Which part of a list the client wants. */
export class ListPage {
  readonly #limit: number
  readonly #first: number | undefined
  /** The key of the last object of the page before. */
  readonly after: string | undefined

  constructor(query: URLSearchParams) {
    const limit = Number(query.get('limit') ?? 0)
    if (!Number.isSafeInteger(limit) || limit < 0) throw badRequest('limit must be a whole number')
    this.#limit = limit
    const token = query.get('continue') ?? ''
    if (token === '') return
    const [, first, after] = /^(\d{1,16}) ([\x21-\x7e]{1,400})$/.exec(Buffer.from(token, 'base64url').toString('latin1')) ?? []
    if (first === undefined) throw badRequest('continue key is not valid: list again without it')
    this.#first = Number(first)
    this.after = after!
  }

  /**
   * The page of these objects, which are sorted. Later pages are of a newer state, and all of them have the resourceVersion of the first: a watch from there
   * on brings every change since, so that a client that lists and then watches misses nothing.
   */
  of(items: readonly KubeLease[], revision: number): { readonly part: readonly KubeLease[]; readonly metadata: JsonObject } {
    const { after } = this
    const rest = after === undefined ? items : items.filter(lease => keyOf(lease.metadata as ObjectName) > after)
    const first = this.#first ?? revision
    const part = this.#limit === 0 ? rest : rest.slice(0, this.#limit)
    const left = rest.length - part.length
    const last = part.at(-1)
    const metadata: JsonObject = { resourceVersion: String(first) }
    if (left > 0 && last !== undefined) {
      metadata.continue = Buffer.from(`${first} ${keyOf(last.metadata as ObjectName)}`).toString('base64url')
      metadata.remainingItemCount = left
    }
    return { part, metadata }
  }
}

export function revisionOf(text: string | null): number {
  if (text === null || text === '') return 0
  if (!/^\d{1,16}$/.test(text) || !Number.isSafeInteger(Number(text)))
    throw badRequest(`Invalid value: ${JSON.stringify(text.slice(0, 32))}: resourceVersion must be a number`)
  return Number(text)
}
