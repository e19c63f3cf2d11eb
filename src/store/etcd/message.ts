/** Requests and answers of etcd, as its JSON gateway writes them: keys and values in base64, int64 as text, false and 0 left out. */
import type { KeyRange } from './keys.ts'

export interface RangeRequest {
  readonly key: string
  readonly range_end?: string
  readonly limit?: number
  readonly keys_only?: boolean
}

export interface Compare {
  readonly key: string
  readonly range_end?: string
  readonly target: 'CREATE' | 'MOD'
  readonly result: 'EQUAL' | 'GREATER'
  readonly create_revision?: string
  readonly mod_revision?: string
}

export type EtcdOperation =
  | { readonly request_range: RangeRequest }
  | { readonly request_put: { readonly key: string; readonly value: string; readonly lease?: string } }
  | { readonly request_delete_range: KeyRange }
  | { readonly request_txn: EtcdTransaction }

export interface EtcdTransaction {
  readonly compare: readonly Compare[]
  readonly success: readonly EtcdOperation[]
  readonly failure: readonly EtcdOperation[]
}

export interface EtcdHeader {
  readonly revision?: string
}

export interface KeyValue {
  readonly key: string
  readonly value?: string
  readonly mod_revision: string
}

export interface RangeAnswer {
  readonly header: EtcdHeader
  readonly kvs?: readonly KeyValue[]
  /** The number of all keys in the range, whatever the limit. */
  readonly count?: string
}

export interface TransactionAnswer {
  readonly header: EtcdHeader
  readonly succeeded?: boolean
  readonly responses?: readonly { readonly response_range?: RangeAnswer; readonly response_txn?: TransactionAnswer }[]
}

export interface WatchAnswer {
  readonly result?: {
    readonly header: EtcdHeader
    readonly created?: boolean
    readonly canceled?: boolean
    readonly compact_revision?: string
    readonly events?: readonly { readonly type?: 'DELETE'; readonly kv: KeyValue }[]
  }
  readonly error?: unknown
}

/** The key exists. */
export function exists(key: string): Compare {
  return { key, target: 'CREATE', result: 'GREATER', create_revision: '0' }
}

/** No key of the range exists. */
export function absent(keys: KeyRange | { readonly key: string }): Compare {
  return { ...keys, target: 'CREATE', result: 'EQUAL', create_revision: '0' }
}

export function range(request: RangeRequest): EtcdOperation {
  return { request_range: request }
}

export function put(key: string, value: string): EtcdOperation {
  return { request_put: { key, value } }
}
