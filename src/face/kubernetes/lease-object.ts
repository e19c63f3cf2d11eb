/**
 * A Lease of `coordination.k8s.io/v1`: its form, its checks, and how it is kept as the value of an entry.
 *
 * The value is JSON after one character that says what the write was: `+` made the object, `=` changed it, `-` deleted it. Watchers need that to word their
 * events. The resourceVersion is not part of it: it is the revision of the entry.
 */
import { VALUE_BYTES } from '../../kernel/name.ts'
import { whyBadName } from '../../wording.ts'
import type { JsonObject } from './protobuf.ts'
import { badRequest, GROUP, invalid, type StatusCause, StatusFailure } from './status.ts'
import { normalTime } from './time-text.ts'

export const API_VERSION = `${GROUP}/v1`
/** The part of the namespace of names that this face has. */
export const PREFIX = 'kubernetes'

export interface KubeMeta {
  name?: string
  generateName?: string
  namespace?: string
  uid?: string
  resourceVersion?: string
  generation?: number
  creationTimestamp?: string
  deletionTimestamp?: string
  deletionGracePeriodSeconds?: number
  labels?: Record<string, string>
  annotations?: Record<string, string>
  ownerReferences?: JsonObject[]
  finalizers?: string[]
}

export interface KubeLeaseSpec {
  holderIdentity?: string
  leaseDurationSeconds?: number
  acquireTime?: string
  renewTime?: string
  leaseTransitions?: number
  strategy?: string
  preferredHolder?: string
}

export interface KubeLease {
  readonly kind: 'Lease'
  readonly apiVersion: typeof API_VERSION
  metadata: KubeMeta
  spec: KubeLeaseSpec
}

/** The name of one object. */
export interface ObjectName {
  readonly namespace: string
  readonly name: string
}

/** The entry of the object, and the resource that its holder holds. */
export function keyOf({ namespace, name }: ObjectName): string {
  return `${PREFIX}/${namespace}/${name}`
}

/** The object that an entry is; undefined for entries below an object, and for names that are no objects. */
export function nameOf(key: string): ObjectName | undefined {
  const [prefix, namespace, name, ...more] = key.split('/')
  return prefix === PREFIX && namespace !== undefined && name !== undefined && more.length === 0 ? { namespace, name } : undefined
}

type FieldCheck = 'text' | 'int' | 'time' | 'microtime' | 'texts' | 'labels' | 'owners' | 'ignored'

const META: Readonly<Record<string, FieldCheck>> = {
  name: 'text',
  generateName: 'text',
  namespace: 'text',
  uid: 'text',
  resourceVersion: 'text',
  generation: 'int',
  creationTimestamp: 'time',
  deletionTimestamp: 'time',
  deletionGracePeriodSeconds: 'int',
  labels: 'labels',
  annotations: 'labels',
  ownerReferences: 'owners',
  finalizers: 'texts',
  managedFields: 'ignored',
  selfLink: 'ignored',
}
const SPEC: Readonly<Record<string, FieldCheck>> = {
  holderIdentity: 'text',
  leaseDurationSeconds: 'int',
  acquireTime: 'microtime',
  renewTime: 'microtime',
  leaseTransitions: 'int',
  strategy: 'text',
  preferredHolder: 'text',
}
const OWNER: Readonly<Record<string, 'string' | 'boolean'>> = {
  kind: 'string',
  name: 'string',
  uid: 'string',
  apiVersion: 'string',
  controller: 'boolean',
  blockOwnerDeletion: 'boolean',
}

const PARTS: ReadonlySet<string> = new Set(['kind', 'apiVersion', 'metadata', 'spec'])
const META_FIELDS = new Map(Object.entries(META))
const SPEC_FIELDS = new Map(Object.entries(SPEC))

/** A Lease that was read, and the fields that it has and a Lease does not. */
export interface ReadLease {
  readonly lease: KubeLease
  readonly unknown: readonly string[]
}

/** Reads a Lease from JSON. Throws `BadRequest` for a field of the wrong type. */
export function readLease(value: unknown): ReadLease {
  const object = asObject(value, 'the body')
  const { kind = 'Lease', apiVersion = API_VERSION } = object
  if (kind !== 'Lease' || apiVersion !== API_VERSION)
    throw badRequest(`the object is ${describe(apiVersion)} ${describe(kind)}, and must be ${API_VERSION} Lease`)
  const unknown: string[] = []
  for (const name of Object.keys(object)) if (!PARTS.has(name)) unknown.push(name)
  const metadata = readFields(object.metadata ?? {}, 'metadata', META_FIELDS, unknown) as KubeMeta
  const spec = readFields(object.spec ?? {}, 'spec', SPEC_FIELDS, unknown) as KubeLeaseSpec
  return { lease: { kind: 'Lease', apiVersion: API_VERSION, metadata, spec }, unknown }
}

/** A Lease whose fields were read, with its metadata in the order of the table: equal objects become equal texts. */
export function inOrder({ metadata, ...lease }: KubeLease): KubeLease {
  const ordered: JsonObject = {}
  for (const name of META_FIELDS.keys()) {
    const value = metadata[name as keyof KubeMeta]
    if (value !== undefined) ordered[name] = value
  }
  return { ...lease, metadata: ordered }
}

function describe(value: unknown): string {
  return typeof value === 'string' ? JSON.stringify(value.slice(0, 64)) : 'of the wrong type'
}

function asObject(value: unknown, what: string): JsonObject {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw badRequest(`${what} must be an object`)
  return value as JsonObject
}

function readFields(value: unknown, where: string, known: ReadonlyMap<string, FieldCheck>, unknown: string[]): JsonObject {
  const read: JsonObject = {}
  const object = asObject(value, where)
  for (const name of Object.keys(object)) if (!known.has(name)) unknown.push(`${where}.${name.slice(0, 64)}`)
  // In the order of the table: equal objects become equal texts.
  for (const [name, check] of known) {
    if (check === 'ignored' || !Object.hasOwn(object, name)) continue
    const value = object[name]
    if (value !== null && value !== undefined) read[name] = readField(value, `${where}.${name}`, check, unknown)
  }
  return read
}

function readField(value: unknown, where: string, check: Exclude<FieldCheck, 'ignored'>, unknown: string[]): unknown {
  switch (check) {
    case 'text':
      return asText(value, where)
    case 'int':
      if (!Number.isSafeInteger(value)) throw badRequest(`${where} must be a whole number`)
      return value
    case 'time':
    case 'microtime':
      return asTime(asText(value, where), where, check)
    case 'texts':
      if (!Array.isArray(value)) throw badRequest(`${where} must be a list`)
      return value.map(item => asText(item, where))
    case 'labels':
      // Entries, not assignments: a key such as __proto__ must stay a key.
      return Object.fromEntries(
        Object.entries(asObject(value, where))
          .sort(([a], [b]) => (a < b ? -1 : 1))
          .map(([name, text]) => [name, asText(text ?? '', where)]),
      )
    case 'owners':
      if (!Array.isArray(value)) throw badRequest(`${where} must be a list`)
      return value.map(item => readOwner(asObject(item, where), where, unknown))
  }
}

function readOwner(owner: JsonObject, where: string, unknown: string[]): JsonObject {
  const read: JsonObject = {}
  for (const [name, value] of Object.entries(owner)) {
    const type = Object.hasOwn(OWNER, name) ? OWNER[name] : undefined
    if (type === undefined) unknown.push(`${where}.${name.slice(0, 64)}`)
    else if (value === null) continue
    else if (typeof value !== type) throw badRequest(`${where}.${name} must be a ${type}`)
    else read[name] = value
  }
  return read
}

function asText(value: unknown, where: string): string {
  if (typeof value !== 'string') throw badRequest(`${where} must be a string`)
  if (!value.isWellFormed()) throw badRequest(`${where} is not Unicode`)
  return value
}

function asTime(text: string, where: string, type: 'time' | 'microtime'): string {
  const time = normalTime(text, type)
  if (time === undefined) throw badRequest(`${where}: ${JSON.stringify(text.slice(0, 64))} is not a time of RFC 3339`)
  return time
}

const SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/
const LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/
const QUALIFIED = /^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$/

export function isNamespace(text: string): boolean {
  return text.length <= 63 && LABEL.test(text)
}

export function isObjectName(text: string): boolean {
  return text.length <= 253 && SUBDOMAIN.test(text)
}

function isQualified(key: string): boolean {
  const [first, second, ...more] = key.split('/')
  if (more.length > 0) return false
  const [prefix, name] = second === undefined ? [undefined, first!] : [first!, second]
  return (prefix === undefined || isObjectName(prefix)) && name.length <= 63 && QUALIFIED.test(name)
}

/** Checks what Kubernetes, and Leasehold, ask of a Lease. Throws `Invalid` with every cause. */
export function checkLease({ metadata, spec }: KubeLease): void {
  const causes: StatusCause[] = []
  const bad = (field: string, value: unknown, message: string) =>
    causes.push({ reason: 'FieldValueInvalid', message: `Invalid value: ${JSON.stringify(value)}: ${message}`, field })
  const { name = '', namespace = '', labels = {}, annotations = {} } = metadata
  if (!isObjectName(name))
    bad(
      'metadata.name',
      name.slice(0, 64),
      'a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "-" or ".", and must start and end with an alphanumeric character',
    )
  if (!isNamespace(namespace))
    bad(
      'metadata.namespace',
      namespace.slice(0, 64),
      'a lowercase RFC 1123 label must consist of lower case alphanumeric characters or "-", and must start and end with an alphanumeric character',
    )
  for (const [key, value] of Object.entries(labels)) {
    if (!isQualified(key)) bad('metadata.labels', key.slice(0, 64), 'is not a qualified name')
    else if (value.length > 63 || (value !== '' && !QUALIFIED.test(value)))
      bad(
        'metadata.labels',
        value.slice(0, 64),
        'a valid label must be an empty string or consist of alphanumeric characters, "-", "_" or "."',
      )
  }
  for (const key of Object.keys(annotations))
    if (!isQualified(key.toLowerCase())) bad('metadata.annotations', key.slice(0, 64), 'is not a qualified name')
  const { holderIdentity, leaseDurationSeconds, leaseTransitions, strategy, preferredHolder } = spec
  if (leaseDurationSeconds !== undefined && (leaseDurationSeconds <= 0 || leaseDurationSeconds > MAX_INT32))
    bad('spec.leaseDurationSeconds', leaseDurationSeconds, 'must be greater than 0')
  if (leaseTransitions !== undefined && (leaseTransitions < 0 || leaseTransitions > MAX_INT32))
    bad('spec.leaseTransitions', leaseTransitions, 'must be greater than or equal to 0')
  if (strategy !== undefined && !isQualified(strategy)) bad('spec.strategy', strategy.slice(0, 64), 'is not a qualified name')
  if (preferredHolder !== undefined && preferredHolder !== '' && (strategy ?? '') === '')
    bad('spec.preferredHolder', preferredHolder.slice(0, 64), 'may only be specified when `strategy` is defined')
  const badHolder = (holderIdentity ?? '') === '' ? undefined : whyBadName(holderIdentity)
  if (badHolder !== undefined) bad('spec.holderIdentity', holderIdentity!.slice(0, 64), `as the name of a holder it ${badHolder}`)
  if (causes.length > 0) throw invalid(name.slice(0, 64), causes.slice(0, 16))
}

const MAX_INT32 = 2 ** 31 - 1

/** Returns whether two Leases that were read have the same spec: all its fields are texts and numbers. */
export function isSameSpec({ spec: a }: KubeLease, { spec: b }: KubeLease): boolean {
  for (const name of SPEC_FIELDS.keys()) if (a[name as keyof KubeLeaseSpec] !== b[name as keyof KubeLeaseSpec]) return false
  return true
}

/** The write of a value changed its object in this way. */
export type WriteMark = '+' | '=' | '-'

/** The value of the entry. Throws if it is longer than one entry may be. */
export function storedValue(mark: WriteMark, { metadata, spec }: KubeLease): string {
  const { resourceVersion: _, ...kept } = metadata
  const value = mark + JSON.stringify({ metadata: kept, spec })
  if (value.length * 3 > VALUE_BYTES && Buffer.byteLength(value) > VALUE_BYTES)
    throw new StatusFailure(
      413,
      'RequestEntityTooLarge',
      `the Lease has more than ${VALUE_BYTES} bytes, which is the limit of one object here`,
    )
  return value
}

/** The object that an entry's value is, at this revision. Undefined: not the value of an object. */
export function storedLease(value: string, revision: number): { readonly mark: WriteMark; readonly lease: KubeLease } | undefined {
  const mark = value[0]
  if (mark !== '+' && mark !== '=' && mark !== '-') return undefined
  try {
    const { lease } = readLease(JSON.parse(value.slice(1)))
    lease.metadata.resourceVersion = String(revision)
    return { mark, lease }
  } catch {
    return undefined // written by another client of Leasehold, and no Lease
  }
}
