/** The log of a case of the suite, as the tests of a store provide it. */
import type { Store } from '../../store.ts'

/** One fresh, empty log on a real engine, and the failures that the suite can cause. */
export interface StoreFixture extends AsyncDisposable {
  /** One more store on the same log, as another process would have. Not open yet; the suite closes it. */
  store(): Store
  /** The same, but it asks to own the log. Absent: this store cannot be owned, and its profile says so. */
  owner?(name: string): Store
  /** The engine takes its owner for dead, although it is alive. */
  forgetOwner?(): Promise<void>
  /** The engine loses its last records, like an engine that acknowledged before it had synced. */
  loseTail(count: number): Promise<void>
  /** Copies all data of the store; the returned function restores the copy. Called while no store has the log open, where it can be owned. */
  copy?(): Promise<() => Promise<void>>
  /**
   * A store on the same log that reaches the engine over a link of its own, which the suite breaks. Every shared store on a remote engine has
   * one. Absent: nothing can be lost between this store and its engine.
   */
  linked?(): Promise<LinkedStore>
}

export interface LinkedStore extends AsyncDisposable {
  /** Not open yet. Its requests time out after a few hundred ms. */
  readonly store: Store
  /** Takes effect with the next request. */
  fail(failure: LinkFailure): void
}

/** The engine executes a request and its answer is lost. Soon afterwards every request is refused. */
export interface LinkFailure {
  /** Answers that pass before the one that is lost. */
  readonly before: number
  /** Answers that pass after it, until requests are refused. */
  readonly after: number
  /** Connections are refused, or the engine refuses for lack of permission. */
  readonly end: 'disconnected' | 'forbidden'
}
