/** The log of a case, and the stores that it has opened there. */
import assert from 'node:assert/strict'
import { LeaseError } from '../../errors.ts'
import { type Position, START, type Store } from '../../store.ts'
import type { LinkFailure, StoreFixture } from './fixture.ts'
import { failureOf, readAll, texts } from './records.ts'

/** Cases by their sentences. */
export type StoreCases = Readonly<Record<string, (log: StoreLog) => Promise<void>>>

/** A store over a breakable link is opened this many times before its failure counts. */
const MAX_OPENS = 50

/** The stores that a case has opened, closed when it ends. */
export class StoreLog implements AsyncDisposable {
  readonly fixture: StoreFixture
  readonly #stores: Store[] = []
  /** The position of a case that appends through several stores. */
  end = START

  constructor(fixture: StoreFixture) {
    this.fixture = fixture
  }

  get ownable(): boolean {
    return this.fixture.owner !== undefined
  }

  store(): Store {
    return this.#kept(this.fixture.store())
  }

  async open(): Promise<Store> {
    const store = this.store()
    await store.open()
    return store
  }

  owner(name: string): Store {
    return this.#kept(this.fixture.owner!(name))
  }

  /** Opens a store over a link that can break. */
  async breakLink(use: (store: Store, fail: (failure: LinkFailure) => void, head: Position) => Promise<void>): Promise<void> {
    if (this.fixture.linked === undefined) return
    for (let attempts = 1; ; attempts++) {
      await using link = await this.fixture.linked()
      await using store = link.store
      const opened = await store.open().catch(failureOf)
      if (!(opened instanceof LeaseError)) return await use(store, failure => link.fail(failure), opened.head)
      // Its timeout is short, so that the failures after this take little time: a machine that stalls can exceed it.
      if (attempts === MAX_OPENS || opened.code !== 'UNAVAILABLE') throw opened
    }
  }

  /** All records, read over a link that works. */
  async everything(): Promise<string[]> {
    const store = await this.open()
    return texts(await readAll(store))
  }

  /** A store that cannot be owned must not claim to be. */
  assertShared(): void {
    assert.equal(this.store().profile.shared, true)
  }

  async close(): Promise<void> {
    for (const store of this.#stores.splice(0)) await store[Symbol.asyncDispose]()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #kept(store: Store): Store {
    this.#stores.push(store)
    return store
  }
}
