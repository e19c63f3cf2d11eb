/**
 * The same random requests to a real etcd and to the face: the answers are equal, after revisions are counted in writes and leases are numbered by their grant.
 */
import { expect, test } from 'vitest'
import { etcdFace } from '../../../src/face/etcd/gateway.ts'
import { httpListener } from '../../../src/server/http/http-listener.ts'
import { describeEngine, engine } from '../../support/engine.ts'
import { random } from '../../support/kernel/stream.ts'
import { place } from '../../support/resp-place.ts'

const REQUESTS = Number(process.env.ETCD_REQUESTS ?? 600)
const b64 = (text: string) => Buffer.from(text, 'latin1').toString('base64')
/** Short, nested and awkward keys: no text, empty segments, dots, percent signs and control characters. */
const KEYS = [
  'a',
  'b',
  'a/b',
  'a/c',
  '/a',
  'a/',
  'a//b',
  '.',
  '..',
  'a%',
  '%',
  'a%2F',
  '\0',
  '\xff',
  'a\xff',
  'caf\xc3\xa9',
  '\xe9/a',
  'a\nb',
  'ab',
]
const VALUES = ['', 'v', 'w', 'base64:x', '\xff\0', 'caf\xc3\xa9', 'long '.repeat(100)]

type Json = Record<string, unknown>
interface Answer {
  readonly status: number
  readonly body: Json
}

async function ask(port: number, path: string, body: object): Promise<Answer> {
  const response = await fetch(`http://127.0.0.1:${port}/v3/${path}`, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { 'content-type': 'application/json' },
  })
  return { status: response.status, body: (await response.json()) as Json }
}

/** One of the two servers: what its own revisions and leases are. */
class Side {
  readonly port: number
  readonly leases: string[] = []
  /** The revisions that wrote keys, in order. */
  readonly #writes: number[] = [0]

  constructor(port: number) {
    this.port = port
  }

  ask(path: string, body: object): Promise<Answer> {
    return ask(this.port, path, this.#own(body) as object)
  }

  /** Replaces the number of a lease, and that of a write, by what they are on this side. */
  #own(value: unknown): unknown {
    if (Array.isArray(value)) return value.map(item => this.#own(item))
    if (typeof value !== 'object' || value === null) return value
    return Object.fromEntries(
      Object.entries(value).map(([name, item]) => {
        if ((name === 'lease' || name === 'ID') && typeof item === 'number') return [name, this.leases[item - 1] ?? String(item)]
        if (/revision$/i.test(name) && typeof item === 'number') return [name, String(item < 0 ? item : (this.#writes[item] ?? item))]
        return [name, this.#own(item)]
      }),
    )
  }

  /** The answer in numbers of writes and grants. */
  counted({ status, body }: Answer): Answer {
    const { cluster_id, member_id, raft_term } = (body.header ?? {}) as Json
    if (status === 200) expect([cluster_id, member_id, raft_term]).toEqual([expect.any(String), expect.any(String), expect.any(String)])
    this.#learn(body)
    return { status, body: this.#counted(status === 200 ? body : { error: body.error, message: body.message, code: body.code }) as Json }
  }

  /** Every write is in the answer that reports it: a mod_revision, or the header of a change. */
  #learn(body: Json): void {
    if (typeof body.ID === 'string' && !this.leases.includes(body.ID)) this.leases.push(body.ID)
  }

  wrote(revision: number): void {
    if (revision > this.#writes.at(-1)!) this.#writes.push(revision)
  }

  #counted(value: unknown): unknown {
    if (Array.isArray(value)) return value.map(item => this.#counted(item))
    if (typeof value !== 'object' || value === null) return value
    const entries = Object.entries(value).filter(([name]) => !['cluster_id', 'member_id', 'raft_term'].includes(name))
    return Object.fromEntries(
      entries.map(([name, item]) => {
        if (name === 'lease' || name === 'ID') return [name, this.leases.indexOf(String(item)) + 1]
        if (/revision$/.test(name)) return [name, this.#writes.findLastIndex(revision => revision <= Number(item))]
        return [name, this.#counted(item)]
      }),
    )
  }
}

describeEngine('etcd', 'the etcd face beside etcd', () => {
  test('gives the same answers to the same requests', async () => {
    await using real = await engine('etcd')
    await using here = await place({ faces: [etcdFace()], http: httpListener() })
    const sides = [new Side(real.port), new Side(here.port)] as const
    const draw = random(20_261)
    const dice = () => draw(1 << 20) / (1 << 20)
    const pick = <T>(list: readonly T[]): T => list[Math.floor(dice() * list.length)]!
    const chance = (share: number) => dice() < share
    let writes = 0

    /** etcd overlooks that a deletion up to the last key hits a put of the same txn, and this face does not: none in a txn then. */
    const span = (open = true) => {
      const key = pick(KEYS)
      if (chance(0.5)) return { key: b64(key) }
      const end = open && chance(0.3) ? '\0' : pick([...KEYS, 'b', `${key}\xff`])
      return { key: b64(chance(0.2) ? '\0' : key), range_end: b64(open || end !== '\0' ? end : 'a') }
    }
    const range = () => ({
      ...span(),
      ...(chance(0.2) && { limit: String(Math.floor(dice() * 4)) }),
      ...(chance(0.2) && { keys_only: true }),
      ...(chance(0.1) && { countOnly: true }),
      ...(chance(0.1) && { serializable: true }),
      ...(chance(0.2) && { sort_order: pick(['NONE', 'ASCEND', 'DESCEND']) }),
      ...(chance(0.1) && { min_mod_revision: Math.floor(dice() * writes) }),
      ...(chance(0.1) && { max_create_revision: Math.floor(dice() * writes) }),
    })
    const put = () => ({
      key: b64(pick(KEYS)),
      ...(chance(0.9) && { value: b64(pick(VALUES)) }),
      ...(chance(0.3) && { lease: 1 + Math.floor(dice() * (sides[0].leases.length + 1)) }),
      ...(chance(0.3) && { prev_kv: true }),
      ...(chance(0.1) && { ignore_value: true }),
      ...(chance(0.1) && { ignore_lease: true }),
    })
    const compare = () => {
      const target = pick(['VERSION', 'CREATE', 'MOD', 'VALUE', 'LEASE'])
      const number = Math.floor(dice() * 3)
      const field = {
        VERSION: { version: String(number) },
        CREATE: { create_revision: Math.floor(dice() * (writes + 1)) * Math.round(dice()) },
        MOD: { mod_revision: Math.floor(dice() * (writes + 1)) * Math.round(dice()) },
        VALUE: { value: b64(pick(VALUES)) },
        LEASE: { lease: number === 0 ? '0' : number },
      }[target]
      return { key: b64(pick(KEYS)), target, result: pick(['EQUAL', 'NOT_EQUAL', 'LESS', 'GREATER']), ...field }
    }
    const operation = (depth: number): object => {
      const kind = dice()
      if (kind < 0.4) return chance(0.5) ? { request_put: put() } : { requestPut: put() }
      if (kind < 0.65) return { request_range: range() }
      if (kind < 0.9 || depth === 0) return { request_delete_range: { ...span(false), ...(chance(0.5) && { prev_kv: true }) } }
      return { request_txn: txn(depth - 1) }
    }
    const some = <T>(most: number, one: () => T) => Array.from({ length: Math.floor(dice() * (most + 1)) }, one)
    const txn = (depth: number): object => ({
      compare: some(2, compare),
      success: some(2, () => operation(depth)),
      failure: some(2, () => operation(depth)),
    })
    const request = (): readonly [string, object] => {
      const kind = dice()
      if (kind < 0.25) return ['kv/put', put()]
      if (kind < 0.45) return ['kv/range', range()]
      if (kind < 0.55) return ['kv/deleterange', { ...span(), ...(chance(0.5) && { prev_kv: true }) }]
      if (kind < 0.85) return ['kv/txn', txn(2)]
      if (kind < 0.9) return ['lease/grant', { TTL: pick([600, '700', 99_999_999_999]) }]
      const ID = 1 + Math.floor(dice() * (sides[0].leases.length + 1))
      if (kind < 0.93) return [pick(['lease/revoke', 'kv/lease/revoke']), { ID }]
      return [pick(['lease/timetolive', 'kv/lease/timetolive']), { ID, keys: true }]
    }

    /** A request with two mistakes is refused for one of them: which one etcd names depends on where it looks first. */
    const hasTwo = (body: object, { body: { error } }: Answer) =>
      /ignore_/.test(JSON.stringify(body)) && ['etcdserver: requested lease not found', 'etcdserver: key not found'].includes(String(error))
    const seen = new Map<string, number>()
    for (let n = 0; n < REQUESTS; n++) {
      const [path, body] = request()
      const answers = await Promise.all(sides.map(side => side.ask(path, body)))
      const [theirs, ours] = answers as [Answer, Answer]
      // etcd counts a revision for each write, so a header that has grown is one.
      const now = Number((theirs.body.header as Json | undefined)?.revision ?? 0)
      if (theirs.status === 200 && now > writes + 1) {
        writes = now - 1
        for (const [i, side] of sides.entries()) side.wrote(Number((answers[i]!.body.header as Json | undefined)?.revision))
      }
      if (hasTwo(body, theirs) && hasTwo(body, ours)) continue
      expect(sides[1].counted(strip(path, ours)), `request ${n}: ${path} ${JSON.stringify(body)}`).toEqual(
        sides[0].counted(strip(path, theirs)),
      )
      seen.set(`${path} ${theirs.status}`, (seen.get(`${path} ${theirs.status}`) ?? 0) + 1)
    }
    // The sequence means something: each kind of request was answered, and some were refused.
    for (const kind of [
      'kv/put 200',
      'kv/put 404',
      'kv/range 200',
      'kv/deleterange 200',
      'kv/txn 200',
      'kv/txn 400',
      'lease/grant 200',
      'lease/grant 400',
    ])
      expect(seen.get(kind) ?? 0, kind).toBeGreaterThan(0)
  })
})

/** The seconds that are left of a lease differ, and so does the text about nothing. */
function strip(path: string, answer: Answer): Answer {
  if (!path.includes('timetolive')) return answer
  const { TTL, ...body } = answer.body
  return { status: answer.status, body: { ...body, ...(TTL === '-1' && { TTL }) } }
}
