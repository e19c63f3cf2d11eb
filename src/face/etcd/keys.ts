/** The key-value service: range, put, deleterange, txn and compaction. */
import type { FaceCaller } from '../face.ts'
import { compacted, futureRevision } from './failure.ts'
import { KeyView, rangeTexts } from './key-view.ts'
import type { Message } from './message.ts'
import { deleteOf, type KeyOperation, putOf, rangeOf, type TxnOperation, txnOf } from './operation.ts'
import { transact } from './txn.ts'

/** Keys that one revision deletes. */
const MAX_DELETED = 100

/** A body without its header, and the revision for the header. */
export interface RevisedBody {
  readonly revision: number
  readonly body: object
  /** The keys of a range as texts: the first field of the body. */
  readonly kvs?: readonly string[]
}

export async function range(message: Message, caller: FaceCaller): Promise<RevisedBody> {
  const asked = rangeOf(message)
  const view = await KeyView.read(caller, [asked.span], asked.serializable)
  if (asked.revision > view.revision) throw futureRevision()
  if (asked.revision > 0 && asked.revision < view.revision) throw compacted()
  const { kvs, rest } = await rangeTexts(caller, asked, view.within(asked.span), view.revision)
  return { revision: view.revision, body: rest, kvs }
}

export async function put(message: Message, caller: FaceCaller): Promise<RevisedBody> {
  return single(putOf(message), caller, 'response_put')
}

export async function deleteRange(message: Message, caller: FaceCaller): Promise<RevisedBody> {
  const asked = deleteOf(message)
  if (asked.span.end === undefined) return single(asked, caller, 'response_delete_range')
  const deleted: object[] = []
  // One round deletes a small range in one revision. A larger one takes several, so that no request holds up all others.
  for (;;) {
    const view = await KeyView.read(caller, [asked.span])
    const found = view.within(asked.span)
    const last = found.length <= MAX_DELETED
    const end = last ? asked.span.end : found[MAX_DELETED]!.key
    const round = { ...asked, span: { key: asked.span.key, end }, prevKv: true }
    const { revision, responses } = await transact(caller, { kind: 'txn', compare: [], success: [round], failure: [] })
    const [first] = responses as readonly { readonly response_delete_range: { readonly prev_kvs?: readonly object[] } }[]
    deleted.push(...(first!.response_delete_range.prev_kvs ?? []))
    if (!last) continue
    const body = deleted.length === 0 ? {} : { deleted: String(deleted.length), ...(asked.prevKv && { prev_kvs: deleted }) }
    return { revision, body }
  }
}

export async function txn(message: Message, caller: FaceCaller): Promise<RevisedBody> {
  const { revision, succeeded, responses } = await transact(caller, txnOf(message))
  return { revision, body: { ...(succeeded && { succeeded }), ...(responses.length > 0 && { responses }) } }
}

/** Past revisions are not kept: all but the present one are compacted already. */
export async function compact(message: Message, { lessor, signal }: FaceCaller): Promise<RevisedBody> {
  const asked = message.int('revision')
  const { revision } = await lessor.read<'summary'>({ kind: 'summary' }, { consistent: true, signal })
  if (asked > revision) throw futureRevision()
  if (asked < revision) throw compacted()
  return { revision, body: {} }
}

/** One operation as a transaction of its own. */
async function single(operation: KeyOperation, caller: FaceCaller, field: string): Promise<RevisedBody> {
  const alone: TxnOperation = { kind: 'txn', compare: [], success: [operation], failure: [] }
  const { revision, responses } = await transact(caller, alone)
  const { header: _, ...body } = (responses[0] as Readonly<Record<string, { readonly header: object }>>)[field]!
  return { revision, body }
}
