/** The requests of the key-value service, read and checked as etcd checks them. */
import { EtcdFailure, keyMissing, tooManyOperations } from './failure.ts'
import { Message } from './message.ts'
import { inSpan, type KeySpan } from './names.ts'

/** As in etcd, unless it is configured otherwise: comparisons, and operations of one branch. */
const MAX_OPERATIONS = 128
const SORT_ORDERS = ['NONE', 'ASCEND', 'DESCEND'] as const
const SORT_TARGETS = ['KEY', 'VERSION', 'CREATE', 'MOD', 'VALUE'] as const
const TARGETS = ['VERSION', 'CREATE', 'MOD', 'VALUE', 'LEASE'] as const
const RESULTS = ['EQUAL', 'GREATER', 'LESS', 'NOT_EQUAL'] as const
const NUMBER_FIELDS = { VERSION: 'version', CREATE: 'create_revision', MOD: 'mod_revision', LEASE: 'lease', VALUE: '' } as const

export interface RangeOperation {
  readonly kind: 'range'
  readonly span: KeySpan
  readonly limit: number
  readonly revision: number
  readonly order: (typeof SORT_ORDERS)[number]
  readonly target: (typeof SORT_TARGETS)[number]
  readonly keysOnly: boolean
  readonly countOnly: boolean
  readonly serializable: boolean
  readonly minMod: number
  readonly maxMod: number
  readonly minCreate: number
  readonly maxCreate: number
}

export interface PutOperation {
  readonly kind: 'put'
  readonly key: string
  readonly value: string
  readonly lease: number
  readonly prevKv: boolean
  readonly ignoreValue: boolean
  readonly ignoreLease: boolean
}

export interface DeleteOperation {
  readonly kind: 'delete'
  readonly span: KeySpan
  readonly prevKv: boolean
}

export interface KeyComparison {
  readonly key: string
  readonly target: (typeof TARGETS)[number]
  readonly result: (typeof RESULTS)[number]
  readonly number: number
  readonly value: string
}

export interface TxnOperation {
  readonly kind: 'txn'
  readonly compare: readonly KeyComparison[]
  readonly success: readonly KeyOperation[]
  readonly failure: readonly KeyOperation[]
}

export type KeyOperation = RangeOperation | PutOperation | DeleteOperation | TxnOperation

export function spanOf(message: Message): KeySpan {
  const key = message.bytes('key')
  if (key === '') throw keyMissing()
  const end = message.bytes('range_end')
  return end === '' ? { key } : { key, end }
}

export function rangeOf(message: Message): RangeOperation {
  const asked = message.choice('sort_order', SORT_ORDERS)
  const target = message.choice('sort_target', SORT_TARGETS)
  return {
    kind: 'range',
    span: spanOf(message),
    limit: Math.max(0, message.int('limit')),
    revision: message.int('revision'),
    order: asked === 'NONE' && target !== 'KEY' ? 'ASCEND' : asked,
    target,
    keysOnly: message.flag('keys_only'),
    countOnly: message.flag('count_only'),
    serializable: message.flag('serializable'),
    minMod: message.int('min_mod_revision'),
    maxMod: message.int('max_mod_revision'),
    minCreate: message.int('min_create_revision'),
    maxCreate: message.int('max_create_revision'),
  }
}

export function putOf(message: Message): PutOperation {
  const put: PutOperation = {
    kind: 'put',
    key: message.bytes('key'),
    value: message.bytes('value'),
    lease: message.int('lease'),
    prevKv: message.flag('prev_kv'),
    ignoreValue: message.flag('ignore_value'),
    ignoreLease: message.flag('ignore_lease'),
  }
  if (put.key === '') throw keyMissing()
  if (put.ignoreValue && put.value !== '') throw new EtcdFailure('INVALID_ARGUMENT', 'etcdserver: value is provided')
  if (put.ignoreLease && put.lease !== 0) throw new EtcdFailure('INVALID_ARGUMENT', 'etcdserver: lease is provided')
  return put
}

export function deleteOf(message: Message): DeleteOperation {
  return { kind: 'delete', span: spanOf(message), prevKv: message.flag('prev_kv') }
}

export function txnOf(message: Message): TxnOperation {
  const lists = [message.list('compare'), message.list('success'), message.list('failure')] as const
  if (lists.some(({ length }) => length > MAX_OPERATIONS)) throw tooManyOperations()
  const txn: TxnOperation = {
    kind: 'txn',
    compare: lists[0].map(comparisonOf),
    success: lists[1].map(operationOf),
    failure: lists[2].map(operationOf),
  }
  // One operation cannot collide with another.
  if (txn.success.length > 1) writtenBy(txn.success)
  if (txn.failure.length > 1) writtenBy(txn.failure)
  return txn
}

function operationOf(value: unknown): KeyOperation {
  const message = new Message(value)
  const range = message.message('request_range')
  if (range !== undefined) return rangeOf(range)
  const put = message.message('request_put')
  if (put !== undefined) return putOf(put)
  const deletion = message.message('request_delete_range')
  if (deletion !== undefined) return deleteOf(deletion)
  const txn = message.message('request_txn')
  if (txn !== undefined) return txnOf(txn)
  throw new EtcdFailure('INVALID_ARGUMENT', 'etcdserver: key not found', 'an operation of a txn names no request')
}

function comparisonOf(value: unknown): KeyComparison {
  const message = new Message(value)
  const target = message.choice('target', TARGETS)
  const key = message.bytes('key')
  if (key === '') throw keyMissing()
  if (message.bytes('range_end') !== '')
    throw new EtcdFailure('UNIMPLEMENTED', 'a comparison of a range is not answered here', 'compare each key by itself')
  return {
    key,
    target,
    result: message.choice('result', RESULTS),
    number: target === 'VALUE' ? 0 : message.int(NUMBER_FIELDS[target]),
    value: target === 'VALUE' ? message.bytes('value') : '',
  }
}

interface WrittenKeys {
  readonly puts: ReadonlySet<string>
  readonly deleted: readonly KeySpan[]
}

/** Returns what one branch may write. Throws if it puts a key twice, or puts and deletes it. Of the branches of an inner transaction only one is taken. */
function writtenBy(operations: readonly KeyOperation[]): WrittenKeys {
  const puts = new Set<string>()
  const deleted = operations.flatMap(operation => (operation.kind === 'delete' ? [operation.span] : []))
  const add = (key: string, other?: ReadonlySet<string>) => {
    if ((puts.has(key) && other?.has(key) !== true) || deleted.some(span => inSpan(span, key)))
      throw new EtcdFailure('INVALID_ARGUMENT', 'etcdserver: duplicate key given in txn request')
    puts.add(key)
  }
  for (const operation of operations) {
    if (operation.kind !== 'txn') continue
    const [success, failure] = [writtenBy(operation.success), writtenBy(operation.failure)]
    for (const key of success.puts) add(key)
    for (const key of failure.puts) add(key, success.puts)
    deleted.push(...success.deleted, ...failure.deleted)
  }
  for (const operation of operations) if (operation.kind === 'put') add(operation.key)
  return { puts, deleted }
}
