/**
 * The rules again, the naive way: lists, searched from the front, and no cleverness. Not the whole kernel: acquire, renew, release, due,
 * revoke, capacities that change and the fifo queue, for locks, pools, sharers and any-of. What it says in a page, the kernel must do.
 */
export interface Wish {
  readonly resource: string
  readonly units: number
  readonly shared: boolean
}

type Status = 'waiting' | 'live' | 'suspect' | 'frozen'

interface Held extends Wish {
  readonly token: number
}

interface Entry {
  readonly id: number
  readonly holder: string
  readonly ttl: number
  readonly grace: number
  readonly parent: number
  readonly priority: number
  readonly any: number
  status: Status
  wishes: readonly Wish[]
  held: Held[]
  epoch: number
  confirmed: boolean
}

export interface Request {
  readonly holder: string
  readonly ttl: number
  readonly wishes: readonly Wish[]
  readonly any?: number
  readonly wait?: boolean
  readonly priority?: number
  readonly parent?: number
  readonly grace?: number
}

export class Model {
  capacity: Readonly<Record<string, number>>
  readonly lockDelay: number
  /** The resources with `fit` queues: a waiter that fits goes past one that wants more. */
  readonly fit: readonly string[]
  leases: Entry[] = []
  #nextLease = 1
  #nextToken = 1

  constructor({
    capacity = {},
    lockDelay = 0,
    fit = [],
  }: { readonly capacity?: Readonly<Record<string, number>>; readonly lockDelay?: number; readonly fit?: readonly string[] } = {}) {
    this.capacity = capacity
    this.lockDelay = lockDelay
    this.fit = fit
  }

  acquire(request: Request): string {
    const { holder, ttl, wishes, any = 0, wait = false, priority = 0, parent = 0, grace = 0 } = request
    for (const wish of wishes) if (wish.units > this.#room(wish.resource)) return 'INVALID'
    if (parent >= this.#nextLease || this.#find(parent)?.status === 'waiting') return 'INVALID'
    if (parent > 0 && !['live', 'suspect'].includes(this.#find(parent)?.status ?? '')) return 'GONE'
    const status: Status = 'waiting'
    const entry: Entry = {
      ...{ id: this.#nextLease, holder, ttl, grace, parent, priority, any },
      ...{ status, wishes, held: [], epoch: 1, confirmed: false },
    }
    const got = this.#wouldGet(entry)
    if (got === undefined && !wait) return 'HELD'
    this.#nextLease++
    this.leases.push(entry)
    if (got === undefined) return 'queued'
    this.#give(entry, got)
    return 'granted'
  }

  renew(id: number): number {
    const lease = this.#find(id)
    if (lease === undefined || lease.status === 'frozen') return -1
    if (lease.status === 'suspect') lease.status = 'live'
    if (lease.status === 'live') lease.confirmed = true
    lease.epoch++
    return lease.confirmed ? lease.ttl : Math.min(lease.ttl, 30_000)
  }

  release(id: number, resource?: string): string {
    const lease = this.#find(id)
    if (lease === undefined) return 'GONE'
    if (resource !== undefined) {
      if (!lease.held.some(held => held.resource === resource)) return 'GONE'
      lease.held = lease.held.filter(held => held.resource !== resource)
      if (lease.status === 'frozen' && lease.held.length === 0) this.#remove(lease)
    } else this.#end(lease, true)
    this.#serve()
    return 'done'
  }

  due(id: number, epoch: number): string {
    const lease = this.#find(id)
    if (lease === undefined || lease.epoch !== epoch) return 'nothing'
    if (lease.status === 'live' && lease.grace > 0) {
      lease.status = 'suspect'
      lease.epoch++
      return 'done'
    }
    const lapsed = lease.status === 'live' || lease.status === 'suspect'
    if (lapsed && this.lockDelay > 0 && lease.held.length > 0) {
      lease.status = 'frozen'
      lease.epoch++
      this.#endChildren(lease)
    } else this.#end(lease, true)
    this.#serve()
    return 'done'
  }

  revoke(id: number, force: boolean): string {
    const lease = this.#find(id)
    if (lease === undefined) return 'GONE'
    this.#end(lease, force)
    this.#serve()
    return 'done'
  }

  /** Changes the capacity. Grants stay. */
  resize(resource: string, units: number): string {
    this.capacity = { ...this.capacity, [resource]: units }
    this.#serve()
    return 'done'
  }

  /** Who has what: `resource lease units`, with `*` where it is frozen and `?` where suspect. */
  holds(): string[] {
    return this.leases
      .flatMap(({ id, status, held }) =>
        held.map(
          ({ resource, units, shared }) =>
            `${resource} ${id} ${shared ? 0 : units}${status === 'frozen' ? '*' : status === 'suspect' ? '?' : ''}`,
        ),
      )
      .sort()
  }

  queue(resource: string): number[] {
    return this.#line()
      .filter(lease => lease.wishes.some(wish => wish.resource === resource))
      .map(lease => lease.id)
  }

  #find(id: number): Entry | undefined {
    return this.leases.find(lease => lease.id === id)
  }

  #room(resource: string): number {
    return this.capacity[resource] ?? 1
  }

  /** All who wait, first to last. */
  #line(): Entry[] {
    return this.leases.filter(lease => lease.status === 'waiting').sort((a, b) => b.priority - a.priority || a.id - b.id)
  }

  #comesBefore(a: Entry, b: Entry): boolean {
    return a.priority > b.priority || (a.priority === b.priority && a.id < b.id)
  }

  /** A waiter that wants more than the capacity blocks no other. */
  #canEverHave(lease: Entry, resource: string): boolean {
    const there = lease.wishes.filter(wish => (wish.shared ? 1 : wish.units) <= this.#room(wish.resource))
    return there.length >= (lease.any === 0 ? lease.wishes.length : lease.any) && there.some(wish => wish.resource === resource)
  }

  #wouldGet(lease: Entry): readonly Wish[] | undefined {
    const free = lease.wishes.filter(wish => {
      const others = this.leases.flatMap(other => other.held).filter(held => held.resource === wish.resource)
      const used = others.reduce((sum, held) => sum + (held.shared ? 0 : held.units), 0)
      const fits = wish.shared
        ? used === 0 && this.#room(wish.resource) > 0
        : !others.some(held => held.shared) && used + wish.units <= this.#room(wish.resource)
      const first =
        this.fit.includes(wish.resource) ||
        !this.#line().some(other => other !== lease && this.#comesBefore(other, lease) && this.#canEverHave(other, wish.resource))
      return fits && first
    })
    const needed = lease.any === 0 ? lease.wishes.length : lease.any
    return free.length < needed ? undefined : free.slice(0, needed)
  }

  #give(lease: Entry, got: readonly Wish[]): void {
    lease.status = 'live'
    lease.wishes = []
    lease.held = got.map(wish => ({ ...wish, token: this.#nextToken++ }))
  }

  #serve(): void {
    for (;;) {
      const next = this.#line().find(lease => this.#wouldGet(lease) !== undefined)
      if (next === undefined) return
      this.#give(next, this.#wouldGet(next)!)
    }
  }

  #end(lease: Entry, stopped: boolean): void {
    if (lease.status === 'frozen' && !stopped) return
    if (lease.status === 'live' && !stopped && lease.held.length > 0) lease.status = 'frozen'
    else this.#remove(lease)
    this.#endChildren(lease)
  }

  #endChildren(lease: Entry): void {
    for (const child of this.leases.filter(other => other.parent === lease.id)) this.#end(child, false)
  }

  #remove(lease: Entry): void {
    this.leases = this.leases.filter(other => other !== lease)
  }
}
