/**
 * The key-value store and its locks. A key KEY is the entry `consul/KEY`, and a session that acquires it holds the resource `consul/KEY`, or the one that a map
 * names for it: so holders with any other client exclude it, and are excluded.
 *
 * An acquire is one command, the grant with the value, and so is a release: whatever ends a request, the key is held with the value of its session, or as it was.
 * Each write compares the revision that it read: a late one changes nothing.
 *
 * The value names the process of its session, by the incarnation that the lease of the key has as well: it is known before the grant. Together with the grant
 * it tells the lock of a session from one that another client took on the same name.
 */
import type { Acquire, Comparison, EntryChange } from '../../kernel/command.ts'
import type { Event } from '../../kernel/event.ts'
import { under } from '../../kernel/name.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import { propose } from '../../lessor/propose.ts'
import type { EntryView, GrantView } from '../../lessor.ts'
import { whyBadName } from '../../wording.ts'
import type { FaceCaller, HttpFaceRequest, HttpFaceResponse } from '../face.ts'
import { joined, mapInSlices } from '../slices.ts'
import { TextFailure, textResponse } from '../text-failure.ts'
import { whenChanged } from './blocking.ts'
import {
  type ConsulPair,
  flagsOf,
  foreignPair,
  foreignSession,
  nameOf,
  type PairContent,
  pairOf,
  ROOT,
  sessionShown,
  shownPair,
  written,
} from './pair.ts'
import { answer, expected, FALSE, TRUE } from './protocol.ts'
import { type ConsulSession, MAX_LOCK_TTL, SESSION_FOLDER, Sessions } from './sessions.ts'

/** A write is tried again this many times because another client was faster. */
const MAX_TRIES = 16
/** Keys that one transaction deletes. */
const DELETED_TOGETHER = 128
/** The sessions are no keys. */
const HIDDEN = `${ROOT}/${SESSION_FOLDER}/`

/** A key as it was read: its value, and the grant of its resource. */
interface KeyState {
  readonly key: string
  readonly name: string
  readonly pair: ConsulPair | undefined
  readonly grant: GrantView | undefined
  readonly revision: number
}

export class KeyValues {
  readonly #caller: FaceCaller

  constructor(caller: FaceCaller) {
    this.#caller = caller
  }

  /** The resource of an entry. */
  #resource(name: string): string {
    return this.#caller.names.resource(name)
  }

  // Reads

  async get(request: HttpFaceRequest, key: string): Promise<HttpFaceResponse> {
    const { query } = request
    if (query.has('keys')) return this.#keys(request, key)
    if (query.has('recurse')) return this.#recurse(request, key)
    const name = nameOf(key)
    const resource = this.#resource(name)
    const at = await whenChanged(request, this.#caller, [name, resource], event => event.key === name || event.resource === resource)
    const { pair, grant, revision } = await this.#read(key, at)
    if (query.has('raw')) {
      if (pair === undefined) return answer(revision, '', { status: 404 })
      const headers = { 'Content-Security-Policy': 'sandbox', 'X-Content-Type-Options': 'nosniff' }
      return answer(revision, pair.value, { type: 'text/plain; charset=utf-8', headers })
    }
    const session = sessionShown(pair, grant)
    const isForeign = session === '' && grant !== undefined && grant.status !== 'frozen' && !(await this.#isOfSession(grant))
    if (pair !== undefined) return answer(revision, `[${shownPair(pair, isForeign ? foreignSession(grant.lease) : session)}]`)
    return isForeign ? answer(revision, `[${foreignPair(key, grant)}]`) : answer(revision, '', { status: 404 })
  }

  async #recurse(request: HttpFaceRequest, prefix: string): Promise<HttpFaceResponse> {
    const { entries, revision } = await this.#under(request, prefix)
    if (entries.length === 0) return answer(revision, '', { status: 404 })
    const { lessor, names, signal } = this.#caller
    // After the entries: a key that was acquired in between shows no session yet, and its change comes after the index of this answer.
    const pairs = await mapInSlices(this.#caller, entries, pairOf, ({ value }) => value.length)
    const holders = new Map<string, GrantView>()
    if (pairs.some(({ locks }) => locks > 0)) {
      for (const folder of names.under(folderOf(prefix))) {
        const { value: resources } = await lessor.read<'resources'>({ kind: 'resources', prefix: folder }, { signal })
        await mapInSlices(this.#caller, resources, ({ resource, grants: [grant] }) => grant && holders.set(resource, grant))
      }
    }
    const write = (pair: ConsulPair) => shownPair(pair, sessionShown(pair, holders.get(this.#resource(`${ROOT}/${pair.key}`))))
    const shown = await mapInSlices(this.#caller, pairs, write, ({ value }) => value.length)
    return { ...answer(revision, ''), body: joined(shown, '[', ']') }
  }

  async #keys(request: HttpFaceRequest, prefix: string): Promise<HttpFaceResponse> {
    const { entries, revision } = await this.#under(request, prefix)
    if (entries.length === 0) return answer(revision, '', { status: 404 })
    const separator = request.query.get('separator') ?? ''
    const keys = new Set<string>()
    for (const { key: name } of entries) {
      const key = name.slice(ROOT.length + 1)
      const end = separator === '' ? -1 : key.indexOf(separator, prefix.length)
      keys.add(end < 0 ? key : key.slice(0, end + separator.length))
    }
    return answer(revision, [...keys])
  }

  /** The entries whose key begins with these characters. */
  async #under(request: HttpFaceRequest, prefix: string): Promise<{ readonly entries: readonly EntryView[]; readonly revision: number }> {
    const start = `${ROOT}/${prefix}`
    const folder = folderOf(prefix)
    const concerns = (name: string | undefined) => name?.startsWith(start) === true && !name.startsWith(HIDDEN)
    const resources = this.#caller.names.under(folder)
    // A resource that is mapped does not tell which key it is for: a query that is answered too early is asked again.
    const isMapped = (name: string | undefined) => name !== undefined && !under(folder, name)
    const at = await whenChanged(
      request,
      this.#caller,
      [folder, ...resources],
      (event: Event) => concerns(event.key) || concerns(event.resource) || isMapped(event.resource),
    )
    return this.#list(start, folder, at)
  }

  async #list(start: string, folder: string, at: { readonly atLeast?: number } = {}) {
    const { lessor, signal } = this.#caller
    const { revision, value } = await lessor.read<'entries'>({ kind: 'entries', prefix: folder }, { consistent: true, ...at, signal })
    const entries = value.filter(({ key }) => key.startsWith(start) && !key.startsWith(HIDDEN))
    return { revision, entries: entries.sort((a, b) => (a.key < b.key ? -1 : 1)) }
  }

  // Without the signal of the client: these reads end soon, and to listen for its end costs as much as one of them.
  async #read(key: string, at: { readonly atLeast?: number } = {}): Promise<KeyState> {
    const { lessor } = this.#caller
    const name = nameOf(key)
    const { revision, value } = await lessor.read<'entries'>({ kind: 'entries', prefix: name, limit: 1 }, { consistent: true, ...at })
    const entry = value.find(found => found.key === name)
    const query = { kind: 'resource', resource: this.#resource(name), waiters: 0, holders: 1 } as const
    const { value: resource } = await lessor.read<'resource'>(query, { atLeast: revision })
    return { key, name, pair: entry && pairOf(entry), grant: resource.grants[0], revision }
  }

  /** The lease that the holder's lease is a child of; 0: none. */
  async #parentOf({ lease: id }: GrantView): Promise<number> {
    const { value: lease } = await this.#caller.lessor.read<'lease'>({ kind: 'lease', lease: id })
    return lease?.parent ?? 0
  }

  /** Returns whether the grant was taken through this face. */
  async #isOfSession(grant: GrantView): Promise<boolean> {
    const { lessor, signal } = this.#caller
    const parent = await this.#parentOf(grant)
    if (parent === 0) return false
    const { value: lease } = await lessor.read<'lease'>({ kind: 'lease', lease: parent }, { signal })
    return lease?.entries.some(({ key }) => key.startsWith(HIDDEN)) === true
  }

  // Writes

  async put(request: HttpFaceRequest, key: string): Promise<HttpFaceResponse> {
    const { query } = request
    nameOf(key)
    const flags = flagsOf(query.get('flags'))
    const [acquire, release, cas] = [query.get('acquire'), query.get('release'), query.get('cas')]
    if ([acquire, release, cas].filter(given => given !== null).length > 1)
      throw new TextFailure(400, 'Conflicting flags: only one of acquire, release and cas')
    const value = await request.body()
    if (acquire !== null) return (await this.#acquire(key, { value, flags }, acquire)) ? TRUE : FALSE
    if (release !== null) return (await this.#release(key, { value, flags }, release)) ? TRUE : FALSE
    return (await this.#set(key, { value, flags }, casOf(cas))) ? TRUE : FALSE
  }

  /** As in Consul, a write does not touch the lock. */
  async #set(key: string, content: Pick<PairContent, 'value' | 'flags'>, cas: number | undefined): Promise<boolean> {
    for (let tries = 1; ; tries++) {
      const found = await this.#read(key)
      const { pair } = found
      if (cas !== undefined && cas !== (pair?.revision ?? 0)) return false
      const { locks = 0, session = '', lock = 0 } = pair ?? {}
      if (await this.#write(found, { ...content, locks, session, lock }, pair?.on ?? 0)) return true
      if (cas !== undefined) return false
      mayRetry(tries, key)
    }
  }

  async #acquire(key: string, content: Pick<PairContent, 'value' | 'flags'>, id: string): Promise<boolean> {
    const [session, first] = await Promise.all([this.#session(id), this.#read(key)])
    for (let tries = 1, found = first; ; tries++, found = await this.#read(key)) {
      const { pair, grant } = found
      if (grant !== undefined && (grant.status === 'frozen' || (await this.#parentOf(grant)) !== session.lease)) return false
      const isAgain = sessionShown(pair, grant) === id
      const held = { ...content, locks: (pair?.locks ?? 0) + (isAgain ? 0 : 1), session: id, lock: session.incarnation }
      if (grant === undefined) {
        const isTaken = await this.#take(found, held, session)
        if (isTaken !== undefined) return isTaken
      } else if (await this.#write(found, held, session.behavior === 'delete' ? grant.lease : 0)) return true
      mayRetry(tries, key)
    }
  }

  /** Takes the resource and writes the value, if the key is as it was read. False: another client was faster. Undefined: the value is another one by now. */
  async #take({ key, name, pair }: KeyState, content: PairContent, session: ConsulSession): Promise<boolean | undefined> {
    const { lease: parent, holder, incarnation, behavior } = session
    const wants = [{ resource: this.#resource(name) }]
    const changes = [{ key: name, value: written(key, content), ...(behavior === 'delete' && { own: true }) }]
    const compare = [unchanged(name, pair)]
    const command: Acquire = { kind: 'acquire', holder, incarnation, ttl: termOf(session), parent, wants, compare, changes }
    const outcome = await propose(this.#caller.lessor, command)
    if (isOutdated(outcome)) return undefined
    if (outcome.kind === 'refused' && outcome.code === 'HELD') return false
    if (outcome.kind === 'refused' && outcome.code === 'GONE') throw invalidSession(session.id)
    expected(outcome, 'granted')
    return true
  }

  async #release(key: string, content: Pick<PairContent, 'value' | 'flags'>, id: string): Promise<boolean> {
    const [session, first] = await Promise.all([this.#session(id), this.#read(key)])
    for (let tries = 1, found = first; ; tries++, found = await this.#read(key)) {
      const { name, pair, grant } = found
      if (grant === undefined || grant.status === 'frozen' || (await this.#parentOf(grant)) !== session.lease) return false
      const isKept = pair === undefined || (isSame(pair, content) && pair.on === 0)
      const outcome = await propose(this.#caller.lessor, {
        kind: 'release',
        lease: grant.lease,
        ...(!isKept && { compare: [unchanged(name, pair)], changes: [{ key: name, value: written(key, { ...pair, ...content }) }] }),
      })
      if (outcome.kind === 'refused' && outcome.code === 'GONE') return false
      if (!isOutdated(outcome)) {
        expected(outcome, 'done')
        return pair !== undefined
      }
      mayRetry(tries, key)
    }
  }

  /** Writes the value if the key is as it was read. False: it is not. `on`: the lease that the value ends with; 0: none. */
  async #write({ key, name, pair }: KeyState, content: PairContent, on: number): Promise<boolean> {
    const change: EntryChange = { key: name, value: written(key, content), ...(on !== 0 && { lease: on }) }
    return this.#transact([unchanged(name, pair)], [change])
  }

  async #transact(compare: readonly Comparison[], success: readonly EntryChange[]): Promise<boolean> {
    const outcome = await propose(this.#caller.lessor, { kind: 'transaction', compare, success })
    // The lease that the value hangs on has ended meanwhile.
    if (outcome.kind === 'refused' && outcome.code === 'GONE') return false
    return expected(outcome, 'transacted').succeeded
  }

  async delete({ query }: HttpFaceRequest, key: string): Promise<HttpFaceResponse> {
    if (query.has('recurse')) {
      if (query.has('cas')) throw new TextFailure(400, 'Conflicting flags: cas and recurse')
      return this.#deleteTree(key)
    }
    nameOf(key)
    const cas = casOf(query.get('cas'))
    if (cas === 0) throw new TextFailure(400, 'Invalid cas: a key that is deleted has an index above 0')
    for (let tries = 1; ; tries++) {
      const found = await this.#read(key)
      const { pair, name } = found
      if (cas !== undefined && pair !== undefined && pair.revision !== cas) return FALSE
      if (pair === undefined || (await this.#transact([unchanged(name, pair)], [{ key: name, delete: true }]))) {
        await this.#endLock(found)
        return TRUE
      }
      if (cas !== undefined) return FALSE
      mayRetry(tries, key)
    }
  }

  async #deleteTree(prefix: string): Promise<HttpFaceResponse> {
    const { lessor, signal } = this.#caller
    const start = `${ROOT}/${prefix}`
    const { entries } = await this.#list(start, folderOf(prefix))
    for (let at = 0; at < entries.length; at += DELETED_TOGETHER)
      await this.#transact(
        [],
        entries.slice(at, at + DELETED_TOGETHER).map(({ key }) => ({ key, delete: true })),
      )
    for (const entry of entries) {
      const pair = pairOf(entry)
      if (pair.locks === 0) continue
      const { value: resource } = await lessor.read<'resource'>(
        { kind: 'resource', resource: this.#resource(entry.key), waiters: 0, holders: 1 },
        { signal },
      )
      await this.#endLock({ key: pair.key, name: entry.key, pair, grant: resource.grants[0], revision: 0 })
    }
    return TRUE
  }

  /** In Consul a key that is deleted is not locked any more. A lock of another client, or of another key, stays. */
  async #endLock({ pair, grant }: KeyState): Promise<void> {
    if (grant === undefined || grant.status === 'frozen') return
    if (sessionShown(pair, grant) === '' && !(await this.#isOfSession(grant))) return
    await propose(this.#caller.lessor, { kind: 'release', lease: grant.lease })
  }

  async #session(id: string): Promise<ConsulSession> {
    const session = await new Sessions(this.#caller).find(id)
    if (session === undefined) throw invalidSession(id)
    return session
  }
}

/** The term of a key that the session holds. */
function termOf({ ttl, lockDelay }: ConsulSession): number {
  return Math.min(MAX_LOCK_TTL, ttl + lockDelay)
}

function invalidSession(id = ''): TextFailure {
  return new TextFailure(500, `rpc error making call: invalid session ${JSON.stringify(id.slice(0, 64))}`)
}

function mayRetry(tries: number, key: string): void {
  if (tries >= MAX_TRIES) throw new TextFailure(500, `other clients changed ${key} each time: try again`)
}

/** The key is not as it was read. */
function isOutdated(outcome: Outcome): boolean {
  return outcome.kind === 'refused' && outcome.reason === 'not-as-compared'
}

function unchanged(key: string, pair: ConsulPair | undefined): Comparison {
  return { key, field: 'revision', is: 'equal', ...(pair !== undefined && { number: pair.revision }) }
}

function isSame(pair: ConsulPair, { value, flags }: Pick<PairContent, 'value' | 'flags'>): boolean {
  return pair.flags === flags && Buffer.compare(pair.value, value) === 0
}

function casOf(given: string | null): number | undefined {
  if (given === null) return undefined
  const cas = Number(given)
  if (!/^\d{1,20}$/.test(given)) throw new TextFailure(400, 'Invalid cas: not an index')
  return cas
}

/** The folder that a raw prefix is in: prefixes of Leasehold are whole segments. */
function folderOf(prefix: string): string {
  const start = `${ROOT}/${prefix}`
  const folder = start.slice(0, start.lastIndexOf('/'))
  const bad = whyBadName(folder)
  if (bad !== undefined) throw new TextFailure(400, `Invalid key: the folder of "${prefix.slice(0, 64)}" ${bad}`)
  return folder
}

type KvMethod = (pairs: KeyValues, request: HttpFaceRequest, key: string) => Promise<HttpFaceResponse>
const METHODS: Readonly<Record<string, KvMethod>> = {
  GET: (pairs, request, key) => pairs.get(request, key),
  PUT: (pairs, request, key) => pairs.put(request, key),
  DELETE: (pairs, request, key) => pairs.delete(request, key),
}
export const KV_METHODS: readonly string[] = Object.keys(METHODS)

export function keyValueAnswer(request: HttpFaceRequest, caller: FaceCaller, key: string): Promise<HttpFaceResponse> | HttpFaceResponse {
  const method = request.method === 'HEAD' ? 'GET' : request.method
  if (!Object.hasOwn(METHODS, method)) return textResponse(405, `method ${method.slice(0, 16)} not allowed`)
  return METHODS[method]!(new KeyValues(caller), request, key)
}
