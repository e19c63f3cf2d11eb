/**
 * Patches of a Lease: JSON patch (RFC 6902) and merge patch (RFC 7396). A Lease has no list with a merge key but its owners, so a strategic merge patch is a
 * merge patch, apart from owners and finalizers, which it adds to.
 */
import type { JsonObject } from './protobuf.ts'
import { badRequest, StatusFailure } from './status.ts'

const MAX_OPERATIONS = 1_000
const MAX_DEPTH = 32
/** Characters that the `copy` operations of one patch may add: each can double the document. */
const MAX_COPIED = 65_536

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Bounds the recursion of everything below. */
export function checkDepth(value: unknown, left = MAX_DEPTH): void {
  if (typeof value !== 'object' || value === null) return
  if (left === 0) throw badRequest(`the body is nested deeper than ${MAX_DEPTH} levels`)
  for (const item of Array.isArray(value) ? value : Object.values(value)) checkDepth(item, left - 1)
}

export function mergePatch(target: unknown, patch: unknown, strategic = false): unknown {
  if (!isObject(patch)) return patch
  // Without a prototype: a key such as __proto__ is a key like others.
  const merged: JsonObject = Object.assign(Object.create(null) as JsonObject, isObject(target) ? target : {})
  if (strategic && Object.hasOwn(patch, '$patch')) {
    if (patch.$patch === 'delete') return null
    if (patch.$patch !== 'replace' && patch.$patch !== 'merge') throw badRequest('unknown $patch directive')
    const { $patch, ...rest } = patch
    return $patch === 'replace' ? rest : mergePatch(target, rest, strategic)
  }
  for (const [name, value] of Object.entries(patch)) {
    if (strategic && name.startsWith('$')) deleteFromList(merged, name, value)
    else if (value === null) delete merged[name]
    else if (strategic && MERGED_LISTS.has(name) && Array.isArray(value)) merged[name] = mergedList(name, merged[name], value)
    else merged[name] = mergePatch(merged[name], value, strategic)
  }
  return merged
}

/** Lists that a strategic merge patch merges, and the field by which. */
const MERGED_LISTS: ReadonlyMap<string, string> = new Map([
  ['ownerReferences', 'uid'],
  ['finalizers', ''],
])

function mergedList(name: string, target: unknown, patch: readonly unknown[]): readonly unknown[] {
  const by = MERGED_LISTS.get(name)!
  const id = (item: unknown) => (by === '' ? item : isObject(item) ? item[by] : undefined)
  const merged = Array.isArray(target) ? [...target] : []
  for (const item of patch) {
    const at = merged.findIndex(there => id(there) === id(item))
    if (isObject(item) && item.$patch === 'delete') {
      if (at >= 0) merged.splice(at, 1)
    } else if (at >= 0) merged[at] = mergePatch(merged[at], item, true)
    else merged.push(item)
  }
  return merged
}

/** `$deleteFromPrimitiveList/finalizers`; the order that `$setElementOrder/…` asks for, and `$retainKeys`, mean nothing for these lists. */
function deleteFromList(merged: JsonObject, directive: string, value: unknown): void {
  const [, name] = /^\$deleteFromPrimitiveList\/(.+)$/.exec(directive) ?? []
  if (name === undefined) return
  const list = merged[name]
  if (Array.isArray(list) && Array.isArray(value)) merged[name] = list.filter(item => !value.includes(item))
}

interface PatchOperation {
  readonly op: string
  readonly path: string
  readonly from?: string
  readonly value?: unknown
}

/** Applies a JSON patch to a copy. Throws `Invalid` where the patch does not fit, as the API server does. */
export function jsonPatch(target: unknown, patch: unknown): unknown {
  if (!Array.isArray(patch)) throw badRequest('a JSON patch must be a list of operations')
  if (patch.length > MAX_OPERATIONS)
    throw new StatusFailure(
      413,
      'RequestEntityTooLarge',
      `The allowed maximum operations in a JSON patch is ${MAX_OPERATIONS}, got ${patch.length}`,
    )
  let document = clone(target)
  let copied = 0
  for (const operation of patch) {
    if (!isObject(operation) || typeof operation.op !== 'string' || typeof operation.path !== 'string')
      throw badRequest('each operation of a JSON patch needs op and path')
    document = applied(document, operation as unknown as PatchOperation, value => {
      copied += JSON.stringify(value).length
      if (copied > MAX_COPIED)
        throw new StatusFailure(413, 'RequestEntityTooLarge', `the copies of the patch have more than ${MAX_COPIED} characters`)
    })
  }
  return document
}

function clone(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(clone)
  if (!isObject(value)) return value
  const copy: JsonObject = Object.create(null) as JsonObject
  for (const [name, item] of Object.entries(value)) copy[name] = clone(item)
  return copy
}

function applied(document: unknown, { op, path, from, value }: PatchOperation, count: (copied: unknown) => void): unknown {
  switch (op) {
    case 'add':
    case 'replace':
      return put(document, pointer(path), clone(value ?? null), op)
    case 'remove':
      return put(document, pointer(path), undefined, 'remove')
    case 'test':
      if (canonical(find(document, pointer(path))) !== canonical(value)) throw unfit(`testing value ${path.slice(0, 128)} failed`)
      return document
    case 'copy':
    case 'move': {
      if (typeof from !== 'string') throw badRequest(`the operation ${op} needs from`)
      const found = find(document, pointer(from))
      if (found === undefined) throw unfit(`${from.slice(0, 128)} is not there`)
      count(found)
      const moved = clone(found)
      const rest = op === 'move' ? put(document, pointer(from), undefined, 'remove') : document
      return put(rest, pointer(path), moved, 'add')
    }
    default:
      throw badRequest(`there is no operation ${op.slice(0, 32)} in a JSON patch`)
  }
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`
  if (!isObject(value)) return JSON.stringify(value) ?? 'undefined'
  const names = Object.keys(value).sort()
  return `{${names.map(name => `${JSON.stringify(name)}:${canonical(value[name])}`).join()}}`
}

function unfit(why: string): StatusFailure {
  return new StatusFailure(422, 'Invalid', `the server rejected our request due to an error in our request: ${why}`)
}

function pointer(path: string): readonly string[] {
  if (path === '') return []
  if (!path.startsWith('/')) throw badRequest(`the path ${path.slice(0, 128)} must begin with a slash`)
  const steps = path.slice(1).split('/')
  if (steps.length > MAX_DEPTH) throw badRequest(`a path has more than ${MAX_DEPTH} steps`)
  return steps.map(step => step.replaceAll('~1', '/').replaceAll('~0', '~'))
}

function find(document: unknown, steps: readonly string[]): unknown {
  let at = document
  for (const step of steps) {
    if (Array.isArray(at)) at = at[index(step, at.length - 1)]
    else if (isObject(at) && Object.hasOwn(at, step)) at = at[step]
    else return undefined
  }
  return at
}

function index(step: string, last: number): number {
  const at = /^(0|[1-9]\d{0,6})$/.test(step) ? Number(step) : Number.NaN
  if (!(at <= last)) throw unfit(`there is no element ${step.slice(0, 32)}`)
  return at
}

function put(document: unknown, steps: readonly string[], value: unknown, how: 'add' | 'replace' | 'remove'): unknown {
  const [last] = steps.slice(-1)
  if (last === undefined) return value
  const parent = find(document, steps.slice(0, -1))
  if (Array.isArray(parent)) {
    if (how === 'add') parent.splice(last === '-' ? parent.length : index(last, parent.length), 0, value)
    else if (how === 'replace') parent[index(last, parent.length - 1)] = value
    else parent.splice(index(last, parent.length - 1), 1)
  } else if (isObject(parent)) {
    if (how !== 'add' && !Object.hasOwn(parent, last)) throw unfit(`${last.slice(0, 64)} is not there`)
    if (how === 'remove') delete parent[last]
    else parent[last] = value
  } else throw unfit(`the parent of ${last.slice(0, 64)} is not there`)
  return document
}
