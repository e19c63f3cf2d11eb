/** The protobuf messages of the Kubernetes API that concern Leases, and the envelope that every body is in: `k8s`, a zero byte, and the kind with the bytes. */
import {
  decodeMessage,
  encodeMessage,
  type JsonObject,
  type MessageField,
  type MessageTable,
  messageTable,
  ProtobufError,
} from './protobuf.ts'

function table(
  ...fields: readonly (readonly [MessageField['number'], MessageField['name'], MessageField['type'], 'many'?])[]
): MessageTable {
  return messageTable(fields.map(([number, name, type, many]) => ({ number, name, type, ...(many && { many: true }) })))
}

const OWNER_REFERENCE = table(
  [1, 'kind', 'string'],
  [3, 'name', 'string'],
  [4, 'uid', 'string'],
  [5, 'apiVersion', 'string'],
  [6, 'controller', 'bool'],
  [7, 'blockOwnerDeletion', 'bool'],
)

const OBJECT_META = table(
  [1, 'name', 'string'],
  [2, 'generateName', 'string'],
  [3, 'namespace', 'string'],
  [5, 'uid', 'string'],
  [6, 'resourceVersion', 'string'],
  [7, 'generation', 'int'],
  [8, 'creationTimestamp', 'time'],
  [9, 'deletionTimestamp', 'time'],
  [10, 'deletionGracePeriodSeconds', 'int'],
  [11, 'labels', 'labels'],
  [12, 'annotations', 'labels'],
  [13, 'ownerReferences', OWNER_REFERENCE, 'many'],
  [14, 'finalizers', 'string', 'many'],
)

const LIST_META = table([2, 'resourceVersion', 'string'], [3, 'continue', 'string'], [4, 'remainingItemCount', 'int'])

const LEASE_SPEC = table(
  [1, 'holderIdentity', 'string'],
  [2, 'leaseDurationSeconds', 'int'],
  [3, 'acquireTime', 'microtime'],
  [4, 'renewTime', 'microtime'],
  [5, 'leaseTransitions', 'int'],
  [6, 'strategy', 'string'],
  [7, 'preferredHolder', 'string'],
)

const LEASE = table([1, 'metadata', OBJECT_META], [2, 'spec', LEASE_SPEC])
const LEASE_LIST = table([1, 'metadata', LIST_META], [2, 'items', LEASE, 'many'])

const STATUS_CAUSE = table([1, 'reason', 'string'], [2, 'message', 'string'], [3, 'field', 'string'])
const STATUS_DETAILS = table(
  [1, 'name', 'string'],
  [2, 'group', 'string'],
  [3, 'kind', 'string'],
  [4, 'causes', STATUS_CAUSE, 'many'],
  [5, 'retryAfterSeconds', 'int'],
  [6, 'uid', 'string'],
)
const STATUS = table(
  [1, 'metadata', LIST_META],
  [2, 'status', 'string'],
  [3, 'message', 'string'],
  [4, 'reason', 'string'],
  [5, 'details', STATUS_DETAILS],
  [6, 'code', 'int'],
)

const PRECONDITIONS = table([1, 'uid', 'string'], [2, 'resourceVersion', 'string'])
const DELETE_OPTIONS = table(
  [1, 'gracePeriodSeconds', 'int'],
  [2, 'preconditions', PRECONDITIONS],
  [4, 'propagationPolicy', 'string'],
  [5, 'dryRun', 'string', 'many'],
)

const RAW_EXTENSION = table([1, 'raw', 'bytes'])
const WATCH_EVENT = table([1, 'type', 'string'], [2, 'object', RAW_EXTENSION])

const TYPE_META = table([1, 'apiVersion', 'string'], [2, 'kind', 'string'])
const UNKNOWN = table([1, 'typeMeta', TYPE_META], [2, 'raw', 'bytes'], [3, 'contentEncoding', 'string'], [4, 'contentType', 'string'])

const TABLES: Readonly<Record<string, MessageTable>> = {
  Lease: LEASE,
  LeaseList: LEASE_LIST,
  Status: STATUS,
  DeleteOptions: DELETE_OPTIONS,
}

const MAGIC = Buffer.from('k8s\0', 'latin1')

/** Returns whether objects of this kind have a protobuf form here. */
export function hasProtobuf(kind: string): boolean {
  return Object.hasOwn(TABLES, kind)
}

/** An object with `kind` and `apiVersion`, in its envelope. */
export function encodeObject(object: Readonly<JsonObject>): Buffer {
  return enveloped(object, encodeMessage(TABLES[(object as { kind: string }).kind]!, object))
}

/** An item of a list of this kind. The bytes of a list are those of its head and its items, one after another. */
export function encodeItem(kind: string, item: object): Buffer {
  return encodeMessage(TABLES[kind]!, { items: [item] })
}

/** A list with these items, in its envelope. */
export function encodeList(head: Readonly<JsonObject>, items: readonly Buffer[]): Buffer {
  return enveloped(head, Buffer.concat([encodeMessage(TABLES[(head as { kind: string }).kind]!, head), ...items]))
}

function enveloped(object: Readonly<JsonObject>, raw: Buffer): Buffer {
  const { kind, apiVersion } = object as { kind: string; apiVersion: string }
  return Buffer.concat([MAGIC, encodeMessage(UNKNOWN, { typeMeta: { apiVersion, kind }, raw, contentEncoding: '', contentType: '' })])
}

/** The object in an envelope. Throws `ProtobufError` for anything else. */
export function decodeObject(bytes: Buffer): JsonObject {
  if (bytes.length < MAGIC.length || !bytes.subarray(0, MAGIC.length).equals(MAGIC))
    throw new ProtobufError('the body does not begin with the four bytes of Kubernetes protobuf')
  const { typeMeta, raw = Buffer.alloc(0) } = decodeMessage(UNKNOWN, bytes.subarray(MAGIC.length)) as {
    typeMeta?: JsonObject
    raw?: Buffer
  }
  const { kind = '', apiVersion = '' } = (typeMeta ?? {}) as { kind?: string; apiVersion?: string }
  const known = Object.hasOwn(TABLES, kind) ? TABLES[kind] : undefined
  if (known === undefined) throw new ProtobufError(`there is no kind ${JSON.stringify(kind.slice(0, 64))} here`)
  return Object.assign(decodeMessage(known, raw), { kind, apiVersion })
}

/** One event of a watch: its length in four bytes, then the event. The event itself has no envelope; the object in it has. */
export function encodeEvent(type: string, object: Readonly<JsonObject>): Buffer {
  const event = encodeMessage(WATCH_EVENT, { type, object: { raw: encodeObject(object) } })
  const length = Buffer.alloc(4)
  length.writeUInt32BE(event.length)
  return Buffer.concat([length, event])
}
