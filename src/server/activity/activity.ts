/**
 * The activity of a server tells its page what happened lately: rates, losses, waits, the last events and the status of instances. One watch of everything keeps it, in memory that is
 * bounded whatever happens (a few megabytes). Nothing depends on it: it is for people.
 *
 * With a file it outlives the server: the minutes of the last day, losses, waits and strips are written there once a minute and at the end.
 */
import { BACKOFF } from '../../backoff.ts'
import { type Clock, pause } from '../../clock.ts'
import type { Event } from '../../kernel/event.ts'
import { MAX_LIST_PAGE } from '../../lessor/list-part.ts'
import type { Lessor } from '../../lessor.ts'
import type { ServerLog } from '../listener.ts'
import { Catalog } from '../registry/catalog.ts'
import { ActivityFile, type SavedActivity } from './activity-file.ts'
import { Newest } from './newest.ts'
import { MINUTES, RateHistory } from './rate-history.ts'
import { StatusStrips } from './status-strips.ts'
import { Waits } from './waits.ts'

const MAX_EVENTS = 2_000
const MAX_LOSSES = 1_000
/** Events of longer values are kept without them. */
const MAX_VALUE = 256
/** Places in queues that are read when the watch begins. */
const MAX_LOADED = 100_000
/** The levels are read this long after something happened, in ms. */
const LEVELS_AFTER = 250
const SAVE_INTERVAL = 60_000
/** The watch rests for this long after events, in ms: a busy server hands them over in a few groups a second, and not after each record. */
const REST = 100
/** Do not rest after a group with this many events, or this many characters in their values: more events may be waiting. */
const LARGE_GROUP = 128
const LARGE_VALUES = 65_536
/** A reader waits for at most this many groups: on a busy server there is always another one. */
const MAX_GROUPS_AWAITED = 3

/** A lease that ended against the will of its holder, for one of its resources. */
export interface LeaseLoss {
  /** Wall time in ms. */
  readonly at: number
  readonly resource: string
  readonly lease: number
  readonly holder: string
  readonly token: number
  readonly cause: string
  readonly by?: string
}

export interface ActivityOptions {
  readonly lessor: Lessor
  readonly clock: Clock
  readonly log: ServerLog
  /** Ends the watch. What is known is saved first. */
  readonly closing: AbortSignal
  /** Where it is kept between two runs. @default only in memory */
  readonly file?: string
}

export class ServerActivity {
  static readonly #byServer = new WeakMap<object, ServerActivity>()
  readonly rates = new RateHistory()
  readonly waits = new Waits()
  readonly strips = new StatusStrips()
  readonly losses = new Newest<LeaseLoss>(MAX_LOSSES)
  readonly events = new Newest<Event>(MAX_EVENTS)
  /** Wall time of the first thing that is known. */
  readonly since: number
  readonly #options: ActivityOptions
  readonly #file: ActivityFile | undefined
  #revision = 0
  #levelsPending = false
  #changed = false
  /** Ends the rest of the watch, while it rests. */
  #endRest: (() => void) | undefined

  /** The activity of a server. `server` is the object that identifies it: its guarded lessor. The first call starts the observation. */
  static of(server: object, options: ActivityOptions): ServerActivity {
    let activity = ServerActivity.#byServer.get(server)
    if (activity === undefined) {
      activity = new ServerActivity(options)
      ServerActivity.#byServer.set(server, activity)
    }
    return activity
  }

  private constructor(options: ActivityOptions) {
    this.#options = options
    const { clock, closing, file, log } = options
    this.since = clock.wall()
    if (file !== undefined) {
      this.#file = new ActivityFile(file, log)
      const saved = this.#file.read()
      if (saved !== undefined) this.since = Math.min(this.since, this.#restore(saved))
      closing.addEventListener('abort', () => this.#save(), { once: true })
    }
    closing.addEventListener('abort', () => this.#endRest?.(), { once: true })
    void this.#follow()
    void this.#followInstances()
  }

  /** Resolves when the events are known that the lessor had when it was called. Call it before reading. */
  async current(): Promise<this> {
    for (let group = 0; group < MAX_GROUPS_AWAITED && this.#endRest !== undefined; group++) {
      this.#endRest()
      await new Promise<void>(resolve => this.#options.clock.soon(resolve))
    }
    return this
  }

  /** The last revision whose events are known. */
  get revision(): number {
    return this.#revision
  }

  async #follow(): Promise<void> {
    const { lessor, clock, closing: signal } = this.#options
    while (!signal.aborted && !lessor.signal.aborted) {
      try {
        if (this.#revision === 0) await this.#load()
        for await (const events of lessor.watch('', { after: this.#revision, grouped: true, signal })) {
          if (events[0]!.type === 'resync') await this.#load()
          else this.#apply(events)
          if (!isLarge(events)) await this.#rest()
        }
      } catch {
        // Keep what is known, and try again.
        await pause(clock, BACKOFF.background.first, signal).catch(() => {})
      }
    }
  }

  #rest(): Promise<void> {
    const { clock, closing } = this.#options
    if (closing.aborted) return Promise.resolve()
    return new Promise(resolve => {
      const cancel = clock.after(REST, () => this.#endRest?.())
      this.#endRest = () => {
        this.#endRest = undefined
        cancel()
        resolve()
      }
    })
  }

  /** Reads who waits. In pages: a list of a hundred thousand waiters in one turn would delay renewals. */
  async #load(): Promise<void> {
    const { lessor, closing: signal } = this.#options
    const { revision } = await lessor.read({ kind: 'summary' }, { signal })
    this.waits.clear()
    for (let offset = 0, total = 1; offset < total && offset < MAX_LOADED; offset += MAX_LIST_PAGE) {
      const page = await lessor.page?.({ kind: 'leases' }, { sort: 'since', state: 'waiting', offset, limit: MAX_LIST_PAGE }, { signal })
      for (const lease of page?.value ?? [])
        for (const { resource } of lease.wants) this.waits.begin({ resource, lease: lease.lease, holder: lease.holder, from: lease.since })
      total = page?.total ?? 0
    }
    // The pages are newer. Events between this revision and theirs are applied again, which changes nothing.
    this.#revision = revision
    this.#readLevelsSoon()
  }

  async #followInstances(): Promise<void> {
    const { lessor, clock, closing } = this.#options
    const catalog = Catalog.of({ lessor, clock, closing })
    catalog.directory.listen((_, before, after) => {
      const named = after ?? before
      if (named !== undefined) this.strips.note(named.service, named.instance, after?.status ?? 'gone', clock.wall())
      this.#noteChange()
    })
    while (!closing.aborted)
      try {
        return void (await catalog.ready())
      } catch {
        await pause(clock, BACKOFF.background.first, closing).catch(() => {})
      }
  }

  #apply(events: readonly Event[]): void {
    const wall = this.#options.clock.wall()
    for (const event of events) this.#applyEvent(event, wall)
    this.#revision = events.at(-1)!.revision
    this.#readLevelsSoon()
    this.#noteChange()
  }

  #applyEvent(event: Event, wall: number): void {
    const { type, lease, holder = '', resource = '', cause = '', at } = event
    const { rates, waits } = this
    this.events.push(event.value !== undefined && event.value.length > MAX_VALUE ? { ...event, value: undefined } : event)
    switch (type) {
      case 'granted':
        rates.count('granted', wall)
        if (waits.none) break
        waits.end(lease, resource, at, 'granted')
        // A waiter of a pool waits for the name of the pool, and is granted members of it.
        for (let slash = resource.lastIndexOf('/'); slash > 0; slash = resource.lastIndexOf('/', slash - 1))
          waits.end(lease, resource.slice(0, slash), at, 'granted')
        break
      case 'queued':
        rates.count('queued', wall)
        waits.begin({ resource, lease, holder, from: at })
        break
      case 'withdrawn':
        waits.end(lease, resource, at, cause === '' ? 'withdrawn' : cause)
        break
      case 'released':
      case 'recalled':
        rates.count(type, wall)
        break
      case 'lapsed':
      case 'revoked':
        if (type === 'lapsed') rates.count('lapsed', wall)
        rates.count('lost', wall)
        this.#noteLoss(event)
    }
  }

  #noteLoss({ type, at, resource, lease, holder = '', token = 0, cause = type, by }: Event): void {
    if (resource === undefined) return
    this.losses.push({ at, resource, lease, holder, token, cause, ...(by !== undefined && { by }) })
  }

  /** Reads how many leases are live and waiting. A quiet server reads nothing. */
  #readLevelsSoon(): void {
    if (this.#levelsPending) return
    this.#levelsPending = true
    const { lessor, clock, closing } = this.#options
    const read = async () => {
      this.#levelsPending = false
      if (closing.aborted) return
      const { value } = await lessor.read<'summary'>({ kind: 'summary' })
      const { leases = 0, waiting = 0 } = value
      this.rates.level('live', clock.wall(), leases - waiting)
      this.rates.level('waiting', clock.wall(), waiting)
    }
    clock.after(LEVELS_AFTER, () => void read().catch(() => {}))
  }

  #noteChange(): void {
    if (this.#changed || this.#file === undefined) return
    this.#changed = true
    this.#options.clock.after(SAVE_INTERVAL, () => this.#save())
  }

  #save(): void {
    if (!this.#changed) return
    this.#changed = false
    this.#file?.write({
      version: 1,
      since: this.since,
      minutes: this.rates.view('minute', this.#options.clock.wall(), MINUTES),
      losses: [...this.losses],
      waits: [...this.waits.past],
      strips: [...this.strips],
    })
  }

  /** Returns since when things are known. */
  #restore({ since, minutes, losses, waits, strips }: SavedActivity): number {
    this.rates.restore(minutes, this.#options.clock.wall())
    for (const loss of losses) this.losses.push(loss)
    for (const wait of waits) this.waits.remember(wait)
    for (const [name, changes] of strips) {
      const [service, instance] = name.split('/', 2) as [string, string]
      for (const { at, status } of changes) this.strips.note(service, instance, status, at)
    }
    return since
  }
}

function isLarge(events: readonly Event[]): boolean {
  if (events.length >= LARGE_GROUP) return true
  let length = 0
  for (const { value } of events) length += value?.length ?? 0
  return length >= LARGE_VALUES
}
