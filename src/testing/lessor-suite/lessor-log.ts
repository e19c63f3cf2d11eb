/** The log of a case, and the lessors that it has opened there. */
import type { EventType } from '../../kernel/event.ts'
import { propose } from '../../lessor/propose.ts'
import type { Lessor } from '../../lessor.ts'
import { within } from '../suite-case.ts'
import { acquire, done, granted, policy, queued } from './expectations.ts'
import type { LessorFixture } from './fixture.ts'
import { Watcher } from './watcher.ts'

/** Cases by their sentences. */
export type LessorCases = Readonly<Record<string, (log: LessorLog) => Promise<void>>>

/** The lessors that a case has opened, closed when it ends. */
export class LessorLog implements AsyncDisposable {
  readonly fixture: LessorFixture
  readonly #lessors: Lessor[] = []

  constructor(fixture: LessorFixture) {
    this.fixture = fixture
  }

  async open(): Promise<Lessor> {
    const lessor = await this.fixture.lessor()
    this.#lessors.push(lessor)
    return lessor
  }

  /** Opens one more, or returns the only one where there can be only one. */
  async other(): Promise<Lessor> {
    return this.fixture.alone ? (this.#lessors[0] ?? this.open()) : this.open()
  }

  async pair(): Promise<readonly [Lessor, Lessor]> {
    return [await this.open(), await this.other()]
  }

  async restart(): Promise<Lessor> {
    await this.close()
    await this.fixture.restart?.()
    return this.open()
  }

  /** A time, and the time by which a lapse may be late. */
  async advance(ms: number, { late = true }: { readonly late?: boolean } = {}): Promise<void> {
    await this.fixture.advance(ms + (late ? (this.fixture.late ?? 200) : 0))
  }

  watch(lessor: Lessor, prefix: string, after?: number, types?: readonly EventType[]): Watcher {
    return new Watcher(lessor, prefix, { ...(after !== undefined && { after }), ...(types !== undefined && { types }) })
  }

  /** Causes events of every type; returns the last revision. */
  async busyLife(lessor: Lessor): Promise<number> {
    const ann = granted(await propose(lessor, acquire('ann', ['a', 'b'], { entries: [{ key: 'service/ann', value: 'up' }] })))
    queued(await propose(lessor, acquire('bob', ['a'], { wait: true, recall: true })))
    await propose(lessor, { kind: 'put', lease: ann.lease, key: 'service/ann', value: 'busy' })
    await propose(lessor, policy('jobs', { capacity: 2 }))
    const child = granted(await propose(lessor, acquire('ann', ['jobs/a'], { parent: ann.lease, incarnation: ann.incarnation })))
    await propose(lessor, { kind: 'release', lease: ann.lease, resource: 'b' })
    await propose(lessor, { kind: 'revoke', target: { lease: child.lease } })
    await propose(lessor, { kind: 'release', lease: child.lease })
    await propose(lessor, { kind: 'release', lease: ann.lease })
    return granted(await propose(lessor, acquire('eve', ['c']))).revision
  }

  /** Makes this many revisions as quickly as possible; returns the last one. */
  async pour(lessor: Lessor, count: number): Promise<number> {
    const lease = granted(await propose(lessor, acquire('pour', [])))
    const answers = await Promise.all(
      Array.from({ length: count }, (_, i) => propose(lessor, { kind: 'put', lease: lease.lease, key: `pour/${i % 10}`, value: `${i}` })),
    )
    return Math.max(...answers.map(answer => done(answer).revision))
  }

  async close(): Promise<void> {
    for (const lessor of this.#lessors.splice(0)) await within(lessor[Symbol.asyncDispose]())
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}
