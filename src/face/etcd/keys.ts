/** The key-value service: range, put, deleterange, txn and compaction. */
import type { FaceCaller } from '../face.ts'
import { compacted, EtcdFailure, futureRevision } from './failure.ts'
import { KeyView, keyJson, rangeTexts } from './key-view.ts'
import type { Message } from './message.ts'
import { deleteOf, type KeyOperation, putOf, rangeOf, type TxnOperation, txnOf } from './operation.ts'
import { deleteUnchanged, transact } from './txn.ts'

/** Keys that one revision deletes. */
const MAX_DELETED = 100
/** A range that other clients write to is read this many times. */
const MAX_ROUNDS = 16

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
  // A small range is deleted in one revision. A larger one takes several, so that no request holds up all others; the last one deletes what is left, in one revision.
  for (let rounds = 1; rounds <= MAX_ROUNDS; rounds++) {
    const view = await KeyView.read(caller, [asked.span])
    const found = view.within(asked.span)
    if (found.length <= MAX_DELETED) {
      const rest: TxnOperation = { kind: 'txn', compare: [], success: [{ ...asked, prevKv: true }], failure: [] }
      const { revision, responses } = await transact(caller, rest)
      const [first] = responses as readonly { readonly response_delete_range: { readonly prev_kvs?: readonly object[] } }[]
      deleted.push(...(first!.response_delete_range.prev_kvs ?? []))
      const body = deleted.length === 0 ? {} : { deleted: String(deleted.length), ...(asked.prevKv && { prev_kvs: deleted }) }
      return { revision, body }
    }
    // All that was found, without reading the range again for each part. A part that another client changed meanwhile is left to the next round.
    for (let at = 0; at < found.length - MAX_DELETED; at += MAX_DELETED) {
      const part = found.slice(at, at + MAX_DELETED)
      if (at > 0) await caller.nextTurn?.()
      if (await deleteUnchanged(caller, part)) for (const record of part) deleted.push(keyJson(record, view.revision))
    }
  }
  throw new EtcdFailure(
    'UNAVAILABLE',
    'etcdserver: request timed out',
    `${deleted.length} keys of the range were deleted, and other clients changed or added keys meanwhile: try again`,
  )
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
