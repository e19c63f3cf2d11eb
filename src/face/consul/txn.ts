/**
 * Transactions of keys (`PUT /v1/txn`), on the kernel's transaction: the keys are read, what the operations would do is worked out, and it is written on condition
 * that every key is still as it was read. Locks are leases and no part of it: an operation on one is refused with what to use instead.
 */
import type { Comparison, EntryChange } from '../../kernel/command.ts'
import { propose } from '../../lessor/propose.ts'
import type { FaceCaller, HttpFaceRequest, HttpFaceResponse } from '../face.ts'
import { TextFailure } from '../text-failure.ts'
import { type ConsulPair, flagsOf, nameOf, pairOf, shownPair, written } from './pair.ts'
import { answer, bodyJson, expected, lowerCased, textField } from './protocol.ts'

/** As in Consul. */
const MAX_OPERATIONS = 64
/** A transaction is tried again this many times because another client was faster. */
const MAX_TRIES = 16
const READS = ['get', 'check-index', 'check-not-exists']
const WRITES = ['set', 'cas', 'delete', 'delete-cas']
const VERBS = [...READS, ...WRITES]

interface PairOperation {
  readonly verb: string
  readonly key: string
  readonly value: Uint8Array
  readonly flags: string
  readonly index: number
}

/** Why an operation failed: the whole transaction is refused for it. */
class OperationFailure extends Error {}

export async function keyTransaction(request: HttpFaceRequest, caller: FaceCaller): Promise<HttpFaceResponse> {
  const operations = await readOperations(request)
  for (let tries = 1; tries <= MAX_TRIES; tries++) {
    const { revision, pairs } = await readKeys(caller, new Set(operations.map(({ key }) => key)))
    const plan = new KeyPlan(pairs)
    const errors: object[] = []
    for (const [OpIndex, operation] of operations.entries()) {
      try {
        plan.add(operation)
      } catch (error) {
        if (!(error instanceof OperationFailure)) throw error
        errors.push({ OpIndex, What: error.message })
      }
    }
    if (errors.length > 0) return answer(revision, { Results: null, Errors: errors }, { status: 409 })
    const { changes } = plan
    if (changes.length === 0 && revision > 0) return answer(revision, plan.shown(revision))
    if (changes.length === 0) continue
    const outcome = await propose(caller.lessor, { kind: 'transaction', compare: plan.conditions, success: changes })
    const { succeeded, revision: at } = expected(outcome, 'transacted')
    if (succeeded) return answer(at, plan.shown(at))
  }
  throw new TextFailure(500, 'other clients changed the keys each time: try again')
}

async function readOperations(request: HttpFaceRequest): Promise<readonly PairOperation[]> {
  const body = await bodyJson(request)
  if (!Array.isArray(body)) throw new TextFailure(400, 'Failed to parse body: a transaction is a list of operations')
  if (body.length > MAX_OPERATIONS)
    throw new TextFailure(413, `Transaction contains too many operations (${body.length} > ${MAX_OPERATIONS})`)
  return body.map(item => {
    const { kv } = lowerCased(item, 'an operation')
    if (kv === undefined)
      throw new TextFailure(400, 'only operations on KV are answered here: nodes, services and checks have their own paths')
    const fields = lowerCased(kv, 'KV')
    const verb = textField(fields, 'Verb')
    if (!VERBS.includes(verb))
      throw new TextFailure(
        400,
        `the verb "${verb.slice(0, 32)}" is not answered in a transaction: there are ${VERBS.join(', ')}. Locks are taken with PUT /v1/kv/KEY?acquire=SESSION`,
      )
    const key = textField(fields, 'Key')
    nameOf(key)
    const { index = 0, flags = 0 } = fields
    if (!Number.isSafeInteger(index) || (index as number) < 0) throw new TextFailure(400, 'Request decode failed: Index is not an index')
    // A larger one has lost digits by now.
    if (!Number.isSafeInteger(flags)) throw new TextFailure(400, 'Request decode failed: Flags above 2^53 are taken by PUT /v1/kv/KEY only')
    return { verb, key, value: Buffer.from(textField(fields, 'Value'), 'base64'), flags: flagsOf(String(flags)), index: index as number }
  })
}

/** The pairs of these keys, and the revision at which all of them were read; 0: they were read at different ones. */
async function readKeys(
  { lessor, signal }: FaceCaller,
  keys: ReadonlySet<string>,
): Promise<{ readonly revision: number; readonly pairs: ReadonlyMap<string, ConsulPair> }> {
  const pairs = new Map<string, ConsulPair>()
  const revisions = new Set<number>()
  for (const key of keys) {
    const name = nameOf(key)
    // The first read waits for the end of the log, and the others see at least that.
    const options = revisions.size === 0 ? { consistent: true, signal } : {}
    const { revision, value } = await lessor.read<'entries'>({ kind: 'entries', prefix: name, limit: 1 }, options)
    revisions.add(revision)
    const entry = value.find(found => found.key === name)
    if (entry !== undefined) pairs.set(key, pairOf(entry))
  }
  const [revision = 1] = revisions
  return { revision: revisions.size > 1 ? 0 : revision, pairs }
}

/** The operations of a transaction read and change this, in their order. */
class KeyPlan {
  readonly #found: ReadonlyMap<string, ConsulPair>
  readonly #used = new Set<string>()
  readonly #written = new Map<string, ConsulPair | undefined>()
  readonly #results: { readonly pair: ConsulPair; readonly isNew: boolean }[] = []

  constructor(found: ReadonlyMap<string, ConsulPair>) {
    this.#found = found
  }

  get conditions(): readonly Comparison[] {
    return [...this.#used].map(key => ({ key: nameOf(key), field: 'revision', is: 'equal', number: this.#found.get(key)?.revision ?? 0 }))
  }

  get changes(): readonly EntryChange[] {
    return [...this.#written].map(([key, pair]) =>
      pair === undefined
        ? { key: nameOf(key), delete: true }
        : { key: nameOf(key), value: written(key, pair), ...(pair.on !== 0 && { lease: pair.on }) },
    )
  }

  add({ verb, key, value, flags, index }: PairOperation): void {
    this.#used.add(key)
    const present = this.#written.has(key) ? this.#written.get(key) : this.#found.get(key)
    const isStale = index !== (present?.revision ?? 0)
    const shown = (pair: ConsulPair, bytes: Uint8Array = new Uint8Array(0)) =>
      this.#results.push({ pair: { ...pair, value: bytes }, isNew: pair.revision === 0 })
    switch (verb) {
      case 'get':
        if (present === undefined) throw new OperationFailure(`key "${key}" doesn't exist`)
        shown(present, present.value)
        return
      case 'check-index':
        if (present === undefined) throw new OperationFailure(`key "${key}" doesn't exist`)
        if (isStale) throw new OperationFailure(`failed index check for key "${key}", current modify index ${present.revision} != ${index}`)
        shown(present)
        return
      case 'check-not-exists':
        if (present !== undefined) throw new OperationFailure(`key "${key}" exists`)
        return
      case 'delete':
      case 'delete-cas':
        if (verb === 'delete-cas' && isStale) throw new OperationFailure(`failed to delete key "${key}", index is stale`)
        if (present === undefined) return
        if (present.locks > 0) throw new OperationFailure(`key "${key}" was locked: delete it with DELETE /v1/kv/KEY, which ends its lock`)
        this.#written.set(key, undefined)
        return
      default: {
        if (verb === 'cas' && isStale) throw new OperationFailure(`failed to set key "${key}", index is stale`)
        // As in Consul, a write does not touch the lock.
        const { locks = 0, session = '', lock = 0, created = 0, on = 0 } = present ?? {}
        const pair = { key, value, flags, locks, session, lock, created, on, revision: 0 }
        this.#written.set(key, pair)
        shown(pair)
      }
    }
  }

  /** The body of the answer, if it was carried out at this revision. */
  shown(revision: number): string {
    const items = this.#results.map(({ pair, isNew }) => {
      const at = isNew ? { revision, created: pair.created === 0 ? revision : pair.created } : {}
      return `{"KV":${shownPair({ ...pair, ...at }, '')}}`
    })
    return `{"Results":[${items.join()}],"Errors":null}`
  }
}
