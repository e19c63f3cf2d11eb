/** The requests about Leases: list, watch, get, create, update, patch and delete, as the API server of Kubernetes answers them. */
import type { Clock } from '../../clock.ts'
import type { FaceCaller, HttpFaceRequest, HttpFaceResponse } from '../face.ts'
import { mapInSlices } from '../slices.ts'
import {
  API_VERSION,
  checkLease,
  inOrder,
  isNamespace,
  isObjectName,
  isSameSpec,
  type KubeLease,
  keyOf,
  type ObjectName,
  type ReadLease,
  readLease,
  storedValue,
} from './lease-object.ts'
import { type FoundLease, type FoundLeases, LeaseObjects } from './lease-objects.ts'
import { watchLeases } from './lease-watch.ts'
import { answerList, ListPage, revisionOf } from './list-answer.ts'
import { type AnswerForm, answerForm, answerObject, JSON_TYPE, mediaType, PROTOBUF_TYPE, parseJson, readBody } from './negotiation.ts'
import { jsonPatch, mergePatch } from './patch.ts'
import type { JsonObject } from './protobuf.ts'
import { type LeaseSelector, parseSelector } from './selector.ts'
import {
  alreadyExists,
  badRequest,
  conflict,
  expired,
  GROUP,
  invalid,
  ModifiedFailure,
  methodNotAllowed,
  modified,
  noSuchPath,
  notFound,
  RESOURCE,
  unsupportedType,
} from './status.ts'
import { leaseTable, partialLease, tableRow } from './table.ts'
import { secondTime } from './time-text.ts'

/** A patch without a resourceVersion is tried again this many times after another write. */
const PATCH_ATTEMPTS = 5
const MINUTE = 60_000
/** A watch lasts this long if the client names no time, and no watch lasts longer. */
const WATCH_TIME = 30 * MINUTE
const MAX_WATCH_TIME = 120 * MINUTE

/** A request names a namespace or all, and an object or none. */
export interface LeaseTarget {
  readonly namespace: string | undefined
  readonly name: string | undefined
}

type LeaseOperation = (routes: LeaseRoutes, target: LeaseTarget & ObjectName) => Promise<HttpFaceResponse>

/** The handlers for all namespaces, for the Leases of one, and for one Lease, by method. `WATCH` is a GET with `watch`. */
const ANSWERS: { readonly [Of in 'all' | 'namespace' | 'object']: Readonly<Record<string, LeaseOperation>> } = {
  all: {
    GET: routes => routes.list(undefined),
    WATCH: (routes, target) => routes.watch(target),
  },
  namespace: {
    GET: (routes, { namespace }) => routes.list(namespace),
    WATCH: (routes, target) => routes.watch(target),
    POST: (routes, { namespace }) => routes.create(namespace),
    DELETE: (routes, { namespace }) => routes.removeAll(namespace),
  },
  object: {
    GET: (routes, object) => routes.get(object),
    WATCH: (routes, target) => routes.watch(target),
    PUT: (routes, object) => routes.update(object),
    PATCH: (routes, object) => routes.patch(object),
    DELETE: (routes, object) => routes.remove(object),
  },
}
const PATHS = {
  all: `/apis/${API_VERSION}/leases`,
  namespace: `/apis/${API_VERSION}/namespaces/{namespace}/leases`,
  object: `/apis/${API_VERSION}/namespaces/{namespace}/leases/{name}`,
} as const

export const LEASE_OPERATIONS: readonly string[] = (['all', 'namespace', 'object'] as const).flatMap(of =>
  Object.keys(ANSWERS[of]).map(method => (method === 'WATCH' ? `GET ${PATHS[of]}?watch=true` : `${method} ${PATHS[of]}`)),
)

export async function answerLeases(request: HttpFaceRequest, caller: FaceCaller, target: LeaseTarget): Promise<HttpFaceResponse> {
  const { namespace, name } = target
  if (namespace !== undefined && !isNamespace(namespace)) throw noSuchPath()
  const routes = new LeaseRoutes(request, caller)
  if (name !== undefined && !isObjectName(name)) throw notFound(name.slice(0, 64))
  const answers = ANSWERS[namespace === undefined ? 'all' : name === undefined ? 'namespace' : 'object']
  const method = request.method === 'GET' && flag(request.query, 'watch') ? 'WATCH' : request.method
  if (!Object.hasOwn(answers, method)) throw methodNotAllowed()
  return answers[method]!(routes, { namespace: namespace!, name: name! })
}

function flag(query: URLSearchParams, name: string): boolean {
  const value = query.get(name)
  return value === 'true' || value === '1'
}

class LeaseRoutes {
  readonly #request: HttpFaceRequest
  readonly #query: URLSearchParams
  readonly #objects: LeaseObjects
  readonly #caller: FaceCaller
  readonly #form: AnswerForm
  readonly #warnings: string[] = []

  constructor(request: HttpFaceRequest, caller: FaceCaller) {
    this.#request = request
    this.#query = request.query
    this.#caller = caller
    this.#objects = new LeaseObjects(caller)
    this.#form = answerForm(request.header('accept'))
  }

  async get(name: ObjectName): Promise<HttpFaceResponse> {
    const { lease } = await this.#objects.find(name, this.#freshness())
    if (lease === undefined) throw notFound(name.name)
    return this.#answer(200, lease)
  }

  async list(namespace: string | undefined): Promise<HttpFaceResponse> {
    const page = new ListPage(this.#query)
    const found = await this.#find(namespace, page)
    const selector = this.#selector()
    const { part, metadata } = page.of(await this.#matching(found.items, selector), found.revision)
    const { as } = this.#form
    if (as === 'Table') {
      const options = { wall: this.#caller.clock.wall(), include: this.#include, metadata }
      return this.#answerList(leaseTable([], options), part, lease => tableRow(lease, options))
    }
    if (as === 'PartialObjectMetadata')
      return this.#answerList({ kind: 'PartialObjectMetadataList', apiVersion: 'meta.k8s.io/v1', metadata, items: [] }, part, partialLease)
    return this.#answerList({ kind: 'LeaseList', apiVersion: API_VERSION, metadata, items: [] }, part)
  }

  async #matching(items: readonly KubeLease[], selector: LeaseSelector): Promise<readonly KubeLease[]> {
    const isMatch = await mapInSlices(this.#caller, items, lease => selector.matches(lease))
    return items.filter((_, i) => isMatch[i])
  }

  #answerList(head: object, items: readonly KubeLease[], shown?: (lease: KubeLease) => object): Promise<HttpFaceResponse> {
    return answerList(this.#request, this.#caller, this.#form, { head, items, shown, headers: this.#headers })
  }

  async #find(namespace: string | undefined, page: ListPage): Promise<FoundLeases> {
    const exact = this.#query.get('resourceVersionMatch') === 'Exact' && page.after === undefined
    const found = await this.#objects.list(namespace, page.after === undefined ? this.#freshness() : { consistent: true })
    const asked = revisionOf(this.#query.get('resourceVersion'))
    if (exact && asked !== found.revision)
      throw expired(`the state at resource version ${asked} is not kept: list without resourceVersionMatch=Exact`)
    return found
  }

  /** Returns how new the answer must be. No resourceVersion: as new as can be; 0: whatever there is. */
  #freshness(): { readonly consistent: boolean; readonly atLeast: number } {
    const asked = this.#query.get('resourceVersion') ?? ''
    const match = this.#query.get('resourceVersionMatch') ?? ''
    if (match !== '' && match !== 'NotOlderThan' && match !== 'Exact')
      throw badRequest('resourceVersionMatch must be NotOlderThan or Exact')
    if (match !== '' && asked === '' && !flag(this.#query, 'sendInitialEvents'))
      throw badRequest('resourceVersionMatch is forbidden unless resourceVersion is provided')
    return { consistent: asked === '', atLeast: revisionOf(asked) }
  }

  #selector(): LeaseSelector {
    return parseSelector(this.#query.get('labelSelector') ?? '', this.#query.get('fieldSelector') ?? '')
  }

  get #include(): string {
    return this.#query.get('includeObject') ?? 'Metadata'
  }

  async watch({ namespace, name }: LeaseTarget): Promise<HttpFaceResponse> {
    const query = this.#query
    const byName = name === undefined ? '' : `,metadata.name=${name}`
    const selector = parseSelector(query.get('labelSelector') ?? '', `${query.get('fieldSelector') ?? ''}${byName}`)
    const sends = query.get('sendInitialEvents')
    const bookmarks = flag(query, 'allowWatchBookmarks')
    if (sends !== null && query.get('resourceVersionMatch') !== 'NotOlderThan')
      throw invalid('', [
        {
          reason: 'FieldValueForbidden',
          message: 'Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan',
          field: 'resourceVersionMatch',
        },
      ])
    const asked = query.get('resourceVersion') ?? ''
    const from = revisionOf(asked)
    const wantsInitial = sends === null ? from === 0 : flag(query, 'sendInitialEvents')
    const needsState = wantsInitial || selector.varies || from === 0
    const state = needsState ? await this.#objects.list(namespace, { consistent: asked === '', atLeast: from }) : undefined
    const matching = state === undefined ? [] : await this.#matching(state.items, selector)
    // An object that was written after `from` may have matched before: then the client is told once that it does not.
    const maybe =
      wantsInitial || !selector.varies
        ? matching
        : [...new Set([...matching, ...state!.items.filter(lease => Number(lease.metadata.resourceVersion) > from)])]
    const after = wantsInitial || from === 0 ? state!.revision : from
    const seconds = Number(query.get('timeoutSeconds') ?? 0)
    const form = this.#form
    const body = await watchLeases(this.#caller, {
      namespace,
      selector,
      form,
      include: this.#include,
      after,
      initial: wantsInitial ? { revision: after, items: matching } : undefined,
      marksInitial: sends !== null && wantsInitial && bookmarks,
      bookmarks,
      timeout: seconds > 0 ? Math.min(seconds * 1_000, MAX_WATCH_TIME) : WATCH_TIME,
      matching: selector.varies ? maybe.map(lease => keyOf(lease.metadata as ObjectName)) : [],
    })
    return { status: 200, type: form.type === PROTOBUF_TYPE ? `${PROTOBUF_TYPE};stream=watch` : JSON_TYPE, body }
  }

  async create(namespace: string): Promise<HttpFaceResponse> {
    const lease = this.#checked(readLease(await readBody(this.#request)))
    const { metadata } = lease
    if (metadata.namespace !== undefined && metadata.namespace !== '' && metadata.namespace !== namespace)
      throw badRequest('the namespace of the provided object does not match the namespace sent on the request')
    if ((metadata.resourceVersion ?? '') !== '') throw badRequest('resourceVersion should not be set on objects to be created')
    metadata.namespace = namespace
    const { clock } = this.#caller
    if ((metadata.name ?? '') === '') {
      if ((metadata.generateName ?? '') === '')
        throw invalid('', [
          { reason: 'FieldValueRequired', message: 'Required value: name or generateName is required', field: 'metadata.name' },
        ])
      metadata.name = generatedName(metadata.generateName!, clock)
    }
    Object.assign(metadata, { uid: newUid(clock), creationTimestamp: secondTime(clock.wall()) })
    delete metadata.deletionTimestamp
    delete metadata.deletionGracePeriodSeconds
    const canonical = checked(lease)
    const name = canonical.metadata as ObjectName
    const before = await this.#objects.find(name, { consistent: false })
    if (this.#isDryRun) {
      if (before.lease !== undefined) throw alreadyExists(name.name)
      return this.#answer(201, canonical)
    }
    return this.#answer(201, await this.#objects.create(name, before, canonical))
  }

  async update(name: ObjectName): Promise<HttpFaceResponse> {
    const lease = this.#checked(readLease(await readBody(this.#request)))
    mustBeNamed(lease, name)
    const asked = lease.metadata.resourceVersion ?? ''
    const before = await this.#findFor(name, asked)
    if (before.lease === undefined) throw notFound(name.name)
    if (asked === '' || asked === '0')
      throw invalid(name.name, [
        { reason: 'FieldValueInvalid', message: 'Invalid value: 0: must be specified for an update', field: 'metadata.resourceVersion' },
      ])
    mustBeVersion(before, name, asked)
    return this.#answer(200, await this.#replace(name, before, lease))
  }

  /** A server that has not applied the newest write yet must not take its own state for a conflict. */
  async #findFor(name: ObjectName, resourceVersion: string): Promise<FoundLease> {
    const local = await this.#objects.find(name, { consistent: false })
    return String(local.revision) === resourceVersion ? local : this.#objects.find(name)
  }

  async patch(name: ObjectName): Promise<HttpFaceResponse> {
    const apply = patcher(mediaType(this.#request.header('content-type')), parseJson(await this.#request.body()))
    for (let attempt = 1; ; attempt++) {
      const before = await this.#objects.find(name)
      if (before.lease === undefined) throw notFound(name.name)
      const patched = readLease(apply(before.lease))
      const lease = this.#checked(patched)
      mustBeNamed(lease, name)
      // A patch that names a resourceVersion is for that one only.
      const asked = lease.metadata.resourceVersion ?? ''
      if (asked !== '' && asked !== before.lease.metadata.resourceVersion) throw modified(name.name)
      try {
        return await this.#answer(200, await this.#replace(name, before, lease))
      } catch (error) {
        if (!(error instanceof ModifiedFailure) || attempt === PATCH_ATTEMPTS) throw error
      }
    }
  }

  async #replace(name: ObjectName, before: FoundLease, lease: KubeLease): Promise<KubeLease> {
    const old = before.lease!
    if ((lease.metadata.uid ?? '') !== '' && lease.metadata.uid !== old.metadata.uid)
      throw conflict(
        name.name,
        `Precondition failed: UID in precondition: ${lease.metadata.uid!.slice(0, 64)}, UID in object meta: ${old.metadata.uid}`,
      )
    const { uid, creationTimestamp, generateName, deletionTimestamp, deletionGracePeriodSeconds } = old.metadata
    Object.assign(lease.metadata, { ...name, uid, creationTimestamp, generateName, deletionTimestamp, deletionGracePeriodSeconds })
    lease.metadata.resourceVersion = old.metadata.resourceVersion!
    const canonical = checked(lease)
    if (this.#isDryRun || isSameLease(canonical, old)) return canonical
    const finalized = deletionTimestamp !== undefined && (canonical.metadata.finalizers ?? []).length === 0
    return finalized ? this.#objects.remove(name, before) : this.#objects.replace(name, before, canonical)
  }

  async remove(name: ObjectName): Promise<HttpFaceResponse> {
    const { preconditions, dryRun } = await this.#deleteOptions()
    const before = await this.#objects.find(name)
    if (before.lease === undefined) throw notFound(name.name)
    const { uid, resourceVersion } = before.lease.metadata
    if (preconditions.uid !== undefined && preconditions.uid !== uid)
      throw conflict(name.name, `Precondition failed: UID in precondition: ${preconditions.uid.slice(0, 64)}, UID in object meta: ${uid}`)
    if (preconditions.resourceVersion !== undefined && preconditions.resourceVersion !== resourceVersion)
      throw conflict(
        name.name,
        `Precondition failed: ResourceVersion in precondition: ${preconditions.resourceVersion.slice(0, 64)}, ResourceVersion in object meta: ${resourceVersion}`,
      )
    const deleted = dryRun ? before.lease : await this.#delete(name, before)
    if (deleted !== undefined && (deleted.metadata.finalizers ?? []).length > 0) return this.#answer(200, deleted)
    return this.#answerAs(200, {
      kind: 'Status',
      apiVersion: 'v1',
      metadata: {},
      status: 'Success',
      details: { name: name.name, group: GROUP, kind: RESOURCE, uid: uid ?? '' },
    })
  }

  /** Deletes every object of a namespace that matches. */
  async removeAll(namespace: string): Promise<HttpFaceResponse> {
    const { dryRun } = await this.#deleteOptions()
    const selector = this.#selector()
    const { items, revision } = await this.#objects.list(namespace)
    const chosen = await this.#matching(items, selector)
    if (!dryRun)
      for (const lease of chosen) {
        this.#caller.signal.throwIfAborted()
        const name = lease.metadata as ObjectName
        const before = await this.#objects.find(name)
        if (before.lease !== undefined) await this.#delete(name, before)
      }
    return this.#answerList(
      { kind: 'LeaseList', apiVersion: API_VERSION, metadata: { resourceVersion: String(revision) }, items: [] },
      chosen,
    )
  }

  /** An object with finalizers is only marked: the write that takes the last one away deletes it. */
  async #delete(name: ObjectName, before: FoundLease): Promise<KubeLease> {
    const { metadata } = before.lease!
    if ((metadata.finalizers ?? []).length === 0) return this.#objects.remove(name, before)
    if (metadata.deletionTimestamp !== undefined) return before.lease!
    const deletionTimestamp = secondTime(this.#caller.clock.wall())
    return this.#objects.replace(name, before, {
      ...before.lease!,
      metadata: { ...metadata, deletionTimestamp, deletionGracePeriodSeconds: 0 },
    })
  }

  async #deleteOptions(): Promise<{ readonly preconditions: { uid?: string; resourceVersion?: string }; readonly dryRun: boolean }> {
    const body = this.#request.hasBody ? ((await readBody(this.#request)) as JsonObject) : {}
    if (typeof body !== 'object' || body === null || Array.isArray(body)) throw badRequest('the body must be DeleteOptions')
    if (body.kind !== undefined && body.kind !== 'DeleteOptions') throw badRequest('the body must be DeleteOptions')
    const { preconditions, dryRun } = body
    if (preconditions !== undefined && (typeof preconditions !== 'object' || Array.isArray(preconditions)))
      throw badRequest('preconditions must be an object')
    const { uid, resourceVersion } = (preconditions ?? {}) as JsonObject
    for (const value of [uid, resourceVersion])
      if (value !== undefined && value !== null && typeof value !== 'string') throw badRequest('preconditions must be strings')
    return {
      preconditions: { ...(typeof uid === 'string' && { uid }), ...(typeof resourceVersion === 'string' && { resourceVersion }) },
      dryRun: this.#isDryRun || (Array.isArray(dryRun) && dryRun.includes('All')),
    }
  }

  /** Tells the client about fields that a Lease does not have: by default with a warning. */
  #checked({ lease, unknown }: ReadLease): KubeLease {
    const how = this.#query.get('fieldValidation') ?? 'Warn'
    const told = unknown.slice(0, 16).map(field => `unknown field "${field}"`)
    if (how === 'Strict' && told.length > 0) throw badRequest(`strict decoding error: ${told.join(', ')}`)
    if (how !== 'Ignore') this.#warnings.push(...told)
    return lease
  }

  get #isDryRun(): boolean {
    const asked = this.#query.getAll('dryRun')
    if (asked.some(value => value !== 'All')) throw badRequest('dryRun must be All')
    return asked.length > 0
  }

  /** One object, as itself, as a table or as its metadata. */
  #answer(status: number, lease: KubeLease): Promise<HttpFaceResponse> {
    const { as } = this.#form
    if (as === undefined) return this.#answerAs(status, lease)
    const metadata = { resourceVersion: lease.metadata.resourceVersion }
    const options = { wall: this.#caller.clock.wall(), include: this.#include, metadata }
    return this.#answerAs(status, as === 'Table' ? leaseTable([lease], options) : partialLease(lease))
  }

  #answerAs(status: number, object: object): Promise<HttpFaceResponse> {
    return answerObject(this.#request, status, object, this.#form, this.#headers)
  }

  get #headers(): Readonly<Record<string, string>> {
    const warnings = this.#warnings.map(text => `299 - ${JSON.stringify(text.replaceAll(/[^\x20-\x7e]/g, '?'))}`)
    return warnings.length > 0 ? { Warning: warnings.join(', ') } : {}
  }
}

/** The object in its canonical form, checked. Its fields were read before, and changed only by this server. */
function checked(lease: KubeLease): KubeLease {
  const canonical = inOrder(lease)
  checkLease(canonical)
  return canonical
}

function mustBeNamed({ metadata }: KubeLease, { namespace, name }: ObjectName): void {
  if ((metadata.name ?? '') !== '' && metadata.name !== name)
    throw badRequest(`the name of the object (${metadata.name!.slice(0, 64)}) does not match the name on the URL (${name})`)
  if ((metadata.namespace ?? '') !== '' && metadata.namespace !== namespace)
    throw badRequest('the namespace of the provided object does not match the namespace sent on the request')
}

/** As in Kubernetes: a write that changes nothing is no write. Most change the spec, which is the shorter part. */
function isSameLease(a: KubeLease, b: KubeLease): boolean {
  return isSameSpec(a, b) && storedValue('=', a) === storedValue('=', b)
}

function mustBeVersion({ lease }: FoundLease, { name }: ObjectName, asked: string): void {
  if (lease!.metadata.resourceVersion !== asked) throw modified(name)
}

function patcher(type: string, patch: unknown): (lease: KubeLease) => unknown {
  // Without the resourceVersion: one that the patch does not name is not asked for.
  const without = ({ metadata: { resourceVersion: _, ...metadata }, ...rest }: KubeLease) => ({ ...rest, metadata })
  switch (type) {
    case 'application/merge-patch+json':
      return lease => mergePatch(without(lease), patch)
    case 'application/strategic-merge-patch+json':
      return lease => mergePatch(without(lease), patch, true)
    case 'application/json-patch+json':
      return lease => jsonPatch(lease, patch)
    default:
      throw unsupportedType(
        'the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json',
      )
  }
}

const SUFFIX = 'bcdfghjklmnpqrstvwxz2456789'
const MAX_GENERATED = 58

function generatedName(start: string, clock: Clock): string {
  let bits = clock.bits()
  let suffix = ''
  for (let i = 0; i < 5; i++) {
    suffix += SUFFIX[Number(bits % BigInt(SUFFIX.length))]
    bits /= BigInt(SUFFIX.length)
  }
  return start.slice(0, MAX_GENERATED) + suffix
}

/** A random UUID. */
function newUid(clock: Clock): string {
  const hex = (clock.bits().toString(16).padStart(16, '0') + clock.bits().toString(16).padStart(16, '0')).slice(0, 32)
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20)}`
}
