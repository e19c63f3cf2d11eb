import { describe, expect, test } from 'vitest'
import type { Event } from '../../src/kernel/event.ts'
import type { EntryView } from '../../src/lessor.ts'
import { Directory } from '../../src/registry/directory.ts'
import { entryOf, type RegistrationInput, registrationOf } from '../../src/registry/entry.ts'
import type { Filter, Instance } from '../../src/registry/match.ts'
import type { PickStrategy } from '../../src/registry/pick.ts'
import { random } from '../support/kernel/stream.ts'

const address = 'h:1'

/** What a log would tell. */
class Log {
  readonly directory = new Directory()
  revision = 0
  #lease = 0

  event(type: Event['type'], key: string, more: Partial<Event> = {}): Event {
    return { revision: this.revision, type, lease: this.#lease, holder: 'h', key, at: 0, ...more }
  }

  tell(...events: (readonly [Event['type'], string, Partial<Event>?])[]): void {
    this.revision++
    this.directory.apply(events.map(([type, key, more]) => this.event(type, key, more)))
  }

  register(input: Partial<RegistrationInput> & { readonly service: string; readonly instance: string }): number {
    const { key, value } = entryOf(registrationOf({ address, ...input }))
    this.#lease++
    this.tell(['put', key, { value }])
    return this.#lease
  }

  state(name: string, state: object, lease?: number): void {
    this.tell(['put', `services/${name}/state`, { value: JSON.stringify(state), ...(lease !== undefined && { lease }) }])
  }

  names(filter: Filter = {}): string[] {
    return this.directory.list(filter).map(({ service, instance }) => `${service}/${instance}`)
  }
}

describe('a directory', () => {
  test('finds by service, by all or any of several capabilities, by tag and by status', () => {
    const log = new Log()
    log.register({ service: 'a', instance: '1', capabilities: ['plan', 'review'], tags: ['blue'] })
    log.register({ service: 'a', instance: '2', capabilities: ['plan'] })
    log.register({ service: 'b', instance: '1', capabilities: ['review', 'test'], tags: ['blue', 'new'] })
    log.state('a/2', { status: 'draining', load: 1 }, 2)
    expect(log.names()).toEqual(['a/1', 'a/2', 'b/1'])
    expect(log.names({ service: 'a' })).toEqual(['a/1', 'a/2'])
    expect(log.names({ capability: 'review' })).toEqual(['a/1', 'b/1'])
    expect(log.names({ capability: ['review', 'plan'] })).toEqual(['a/1'])
    expect(log.names({ capabilities: ['review', 'plan'] })).toEqual(['a/1'])
    expect(log.names({ capabilities: { any: ['test', 'plan'] } })).toEqual(['a/1', 'a/2', 'b/1'])
    expect(log.names({ capabilities: { all: ['review'], any: ['test'] } })).toEqual(['b/1'])
    expect(log.names({ tag: ['blue', 'new'] })).toEqual(['b/1'])
    expect(log.names({ status: 'draining' })).toEqual(['a/2'])
    expect(log.names({ status: ['passing', 'warning'] })).toEqual(['a/1', 'b/1'])
    expect(log.names({ service: 'c' })).toEqual([])
    expect(log.directory.services()).toEqual([
      { service: 'a', instances: 2 },
      { service: 'b', instances: 1 },
    ])
    expect(() => log.names({ wish: 1 } as Filter)).toThrow(/no filter wish/)
    expect(() => log.names({ status: 'fine' as never })).toThrow(/no status fine/)
  })

  test('puts the nearest first', () => {
    const log = new Log()
    for (const [instance, zone] of [
      ['1', 'us/nyc/1'],
      ['2', 'eu/fra/2'],
      ['3', 'eu/fra/1'],
      ['4', 'eu/ber/1'],
      ['5', ''],
    ] as const)
      log.register({ service: 's', instance, zone })
    expect(log.names({ zone: 'eu/fra/1' })).toEqual(['s/3', 's/2', 's/4', 's/1', 's/5'])
  })

  test('shows the worst that is known: its own will, then its check, then its silence, then its flapping', () => {
    const log = new Log()
    const lease = log.register({ service: 's', instance: '1' })
    const status = () => log.directory.get('s', '1')!.status
    log.tell(['put', 'services/s/1/check', { value: '{"status":"warning"}' }])
    expect(status()).toBe('warning')
    log.tell(['suppressed', 'services/s/1'])
    expect(status()).toBe('suppressed')
    log.tell(['suspected', 'services/s/1'])
    expect(status()).toBe('suspect')
    log.tell(['put', 'services/s/1/check', { value: '{"status":"critical","reason":"no answer"}' }])
    expect(log.directory.get('s', '1')).toMatchObject({ status: 'critical', reason: 'no answer' })
    log.state('s/1', { status: 'maintenance', load: 0 }, lease)
    expect(status()).toBe('maintenance')
    log.tell(
      ['deleted', 'services/s/1/check'],
      ['deleted', 'services/s/1/state'],
      ['recovered', 'services/s/1'],
      ['reused', 'services/s/1'],
    )
    expect(status()).toBe('passing')
  })

  test('ignores what a predecessor said, and begins a successor with a clean sheet', () => {
    const log = new Log()
    const old = log.register({ service: 's', instance: '1' })
    log.state('s/1', { status: 'draining', load: 9 }, old)
    log.tell(['suspected', 'services/s/1'])
    log.register({ service: 's', instance: '1' })
    expect(log.directory.get('s', '1')).toMatchObject({ status: 'passing', load: 0 })
    log.state('s/1', { status: 'critical', load: 9 }, old)
    expect(log.directory.get('s', '1')).toMatchObject({ status: 'passing', load: 0 })
  })

  test('leaves nothing behind when all are gone', () => {
    const log = new Log()
    for (const instance of ['1', '2']) {
      log.register({ service: 's', instance, capabilities: ['c'], tags: ['t'] })
      log.state(`s/${instance}`, { status: 'warning', load: 1 })
      log.tell(['deleted', `services/s/${instance}`], ['deleted', `services/s/${instance}/state`])
    }
    expect([log.names(), log.directory.size, log.directory.services()]).toEqual([[], 0, []])
  })

  test('knows which services are preserved', () => {
    const log = new Log()
    log.tell(['preserving', 'services/s', { cause: '4 of 20' }])
    expect([...log.directory.preserved]).toEqual([['s', '4 of 20']])
    log.tell(['relaxed', 'services/s'])
    expect(log.directory.preserved.size).toBe(0)
  })

  test('loaded anew it tells only what differs', () => {
    const log = new Log()
    log.register({ service: 's', instance: '1' })
    log.register({ service: 's', instance: '2' })
    log.register({ service: 's', instance: '3' })
    const told: string[] = []
    log.directory.listen((_, before, after) => told.push(`${before?.status ?? '-'} ${after?.status ?? '-'} ${(after ?? before)!.instance}`))
    const entry = (instance: string, lease: number, more: Partial<EntryView> = {}): EntryView => ({
      ...{ key: `services/s/${instance}`, value: '{"addresses":["h:1"]}', lease, holder: 'h', incarnation: 1, status: 'live', revision: 1 },
      ...{ generation: 0, suppressed: false, remaining: 1, ...more },
    })
    log.directory.load([entry('1', 1), entry('2', 2, { status: 'suspect' }), entry('4', 4)], 9)
    expect(told).toEqual(['passing - 3', 'passing suspect 2', '- passing 4'])
    expect(log.directory.revision).toBe(9)
  })

  test('and its views agree with a naive search after any events', () => {
    const filters: Filter[] = [
      {},
      { service: 's1' },
      { capability: 'c1' },
      { capabilities: { any: ['c0', 'c2'] } },
      { tag: 't1', status: 'passing' },
    ]
    for (let seed = 1; seed <= 20; seed++) {
      const draw = random(seed)
      const log = new Log()
      const views = filters.map(filter => log.directory.view(filter, () => 0))
      for (let i = 0; i < 300; i++) {
        const name = { service: `s${draw(3)}`, instance: `${draw(6)}` }
        const key = `services/${name.service}/${name.instance}`
        const dice = draw(10)
        const lease = log.directory.get(name.service, name.instance)?.lease ?? 0
        if (dice < 4)
          log.register({
            ...name,
            capabilities: ['c0', 'c1', 'c2'].filter(() => draw(2) === 0),
            tags: ['t0', 't1'].filter(() => draw(2) === 0),
          })
        else if (dice < 6) log.tell(['deleted', key, { lease }])
        else if (dice < 8) log.state(`${name.service}/${name.instance}`, { status: ['passing', 'warning'][draw(2)], load: draw(9) }, lease)
        else log.tell([(['suspected', 'recovered', 'suppressed', 'reused'] as const)[draw(4)]!, key, { lease }])
        for (const [n, filter] of filters.entries()) {
          const naive = log.directory.list().filter(instance => naively(filter, instance))
          expect(log.directory.list(filter)).toEqual(naive)
          expect(views[n]!.list()).toEqual(naive)
        }
      }
    }
  })
})

function naively(filter: Filter, { service, capabilities, tags, status }: Instance): boolean {
  const { any = [] } = (filter.capabilities ?? {}) as { any?: readonly string[] }
  if (filter.service !== undefined && filter.service !== service) return false
  if (filter.capability !== undefined && !capabilities.includes(filter.capability as string)) return false
  if (any.length > 0 && !any.some(capability => capabilities.includes(capability))) return false
  return (filter.tag === undefined || tags.includes(filter.tag as string)) && (filter.status === undefined || filter.status === status)
}

describe('picking', () => {
  function filled(
    n: number,
    each: (i: number) => Partial<RegistrationInput> = () => ({}),
  ): { log: Log; count: (strategy: PickStrategy, picks: number) => number[] } {
    const log = new Log()
    for (let i = 0; i < n; i++) log.register({ service: 's', instance: `${i}`, ...each(i) })
    const draw = random(7)
    const view = log.directory.view({}, () => draw(1 << 30) / 2 ** 30)
    const count = (strategy: PickStrategy, picks: number) => {
      const counts = new Array<number>(n).fill(0)
      for (let i = 0; i < picks; i++) counts[Number(view.pick({ strategy, key: `k${i}` })!.instance)]!++
      return counts
    }
    return { log, count }
  }

  test('round robin gives everyone the same number of turns', () => {
    expect(filled(5).count('round-robin', 50)).toEqual([10, 10, 10, 10, 10])
  })

  test('by weight everyone gets its share, and who has none gets nothing', () => {
    const counts = filled(3, i => ({ weight: [0, 1, 3][i]! })).count('weighted', 20_000)
    expect(counts[0]).toBe(0)
    expect(counts[2]! / counts[1]!).toBeGreaterThan(2.8)
    expect(counts[2]! / counts[1]!).toBeLessThan(3.2)
  })

  test('when nobody has any weight, everyone is the same', () => {
    expect(Math.min(...filled(4, () => ({ weight: 0 })).count('weighted', 4_000))).toBeGreaterThan(850)
  })

  test('the least loaded is picked, equals in turn, by what is known at that moment', () => {
    const { log, count } = filled(4)
    for (let i = 0; i < 4; i++) log.state(`s/${i}`, { status: 'passing', load: [5, 1, 9, 1][i] }, i + 1)
    expect(count('least-loaded', 100)).toEqual([0, expect.any(Number), 0, expect.any(Number)])
    expect(count('least-loaded', 100)[1]).toBeGreaterThan(20)
    log.state('s/2', { status: 'passing', load: 0 }, 3)
    expect(count('least-loaded', 10)).toEqual([0, 0, 10, 0])
  })

  test('of two random ones the less loaded: the most loaded of all is never picked, the least loaded most often', () => {
    const { log, count } = filled(5)
    for (let i = 0; i < 5; i++) log.state(`s/${i}`, { status: 'passing', load: i }, i + 1)
    const counts = count('two-choices', 5_000)
    expect(counts[4]).toBe(0)
    expect(counts[0]).toBeGreaterThan(1_800)
    expect(counts.slice(0, 4).every((n, i) => i === 0 || n < counts[i - 1]!)).toBe(true)
  })

  test('a hash gives even shares, by weight, and only the keys of who comes or goes move', () => {
    for (const weights of [() => 1, (i: number) => 1 + (i % 3)]) {
      const log = new Log()
      const n = 20
      for (let i = 0; i < n; i++) log.register({ service: 's', instance: `${i}`, weight: weights(i) })
      const view = log.directory.view({}, () => 0)
      const keys = Array.from({ length: 20_000 }, (_, i) => `user-${i}`)
      const where = () => keys.map(key => view.pick({ key })!.instance)
      const before = where()
      const total = Array.from({ length: n }, (_, i) => weights(i)).reduce((a, b) => a + b, 0)
      for (let i = 0; i < n; i++) {
        const share = before.filter(instance => instance === `${i}`).length / ((keys.length * weights(i)) / total)
        expect(share).toBeGreaterThan(0.8)
        expect(share).toBeLessThan(1.2)
      }
      log.tell(['deleted', 'services/s/7', { lease: 8 }])
      const without = where()
      expect(keys.filter((_, i) => before[i] !== without[i] && before[i] !== '7')).toEqual([])
      log.register({ service: 's', instance: '7', weight: weights(7) })
      expect(where()).toEqual(before)
      log.register({ service: 's', instance: 'new' })
      const after = where()
      expect(keys.filter((_, i) => before[i] !== after[i] && after[i] !== 'new')).toEqual([])
    }
  })

  test('never one that drains, is in maintenance or critical; a suspect or suppressed one only when nothing better is left', () => {
    const { log } = filled(6)
    const view = log.directory.view({}, () => 0)
    const picked = () => [...new Set(Array.from({ length: 24 }, () => view.pick()?.instance))].sort().join('')
    for (const [i, status] of ['draining', 'maintenance', 'critical'].entries()) log.state(`s/${i}`, { status, load: 0 }, i + 1)
    expect(picked()).toBe('345')
    log.tell(['suspected', 'services/s/3'], ['suppressed', 'services/s/4'])
    expect(picked()).toBe('5')
    log.tell(['deleted', 'services/s/5'])
    expect(picked()).toBe('3')
    log.tell(['deleted', 'services/s/3'])
    expect(picked()).toBe('4')
    log.tell(['deleted', 'services/s/4'])
    expect(picked()).toBe('')
  })

  test('only the nearest that can be, and further away when they are gone', () => {
    const { log } = filled(3, i => ({ zone: ['eu/fra', 'eu/ber', 'us/nyc'][i]! }))
    const view = log.directory.view({ zone: 'eu/fra' }, () => 0)
    expect(view.pick()!.zone).toBe('eu/fra')
    log.tell(['suspected', 'services/s/0'])
    expect(view.pick()!.zone).toBe('eu/ber')
    log.tell(['recovered', 'services/s/0'])
    expect(view.pick()!.zone).toBe('eu/fra')
  })
})
