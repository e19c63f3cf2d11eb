/** Events: a watcher of a single name must know from them alone its holders, waiters and registrations. */
import { expect, test } from 'vitest'
import { applyBatch } from '../../src/kernel/codec/batch.ts'
import type { Event } from '../../src/kernel/event.ts'
import { createState, FROZEN, type LeaseState, RULES, type State, SUSPECT } from '../../src/kernel/state.ts'
import { Stream } from '../support/kernel/stream.ts'
import { World } from '../support/kernel/world.ts'

const SEEDS = 60
const LENGTH = 150

/** A mirror that looks at each event under its own name only, as a watch with that prefix would. */
class Mirror {
  readonly #holds = new Map<string, string>()
  readonly #waits = new Set<string>()
  readonly #entries = new Map<string, string>()

  hear({ type, lease, resource, token, key, value }: Event): void {
    const name = `${resource ?? key} ${lease}`
    if (resource !== undefined)
      switch (type) {
        case 'queued':
          return this.#change(!this.#waits.has(name), type, name, () => this.#waits.add(name))
        case 'withdrawn':
          return this.#change(this.#waits.delete(name), type, name)
        case 'granted':
          this.#waits.delete(name)
          return this.#change(!this.#holds.has(name), type, name, () => this.#holds.set(name, `#${token}`))
        case 'released':
        case 'lapsed':
        case 'revoked':
        case 'transferred':
          return this.#change([`#${token}`, `#${token} suspect`].includes(this.#holds.get(name) ?? ''), type, name, () =>
            this.#holds.delete(name),
          )
        case 'frozen':
          return this.#change(!this.#holds.has(name), type, name, () => this.#holds.set(name, `#${token} frozen`))
        case 'thawed':
          return this.#change(this.#holds.get(name) === `#${token} frozen`, type, name, () => this.#holds.delete(name))
        case 'suspected':
          return this.#change(this.#holds.get(name) === `#${token}`, type, name, () => this.#holds.set(name, `#${token} suspect`))
        case 'recovered':
          return this.#change(this.#holds.get(name) === `#${token} suspect`, type, name, () => this.#holds.set(name, `#${token}`))
        case 'recalled':
          return this.#change([`#${token}`, `#${token} suspect`].includes(this.#holds.get(name) ?? ''), type, name)
      }
    if (key === undefined) return
    const there = this.#entries.get(key)
    const suspect = `${lease} suspect`
    if (type === 'put') this.#entries.set(key, `${there?.startsWith(suspect) ? suspect : lease} = ${value}`)
    if (type === 'suspected') this.#entries.set(key, there!.replace(`${lease}`, suspect))
    if (type === 'recovered') this.#entries.set(key, there!.replace(suspect, `${lease}`))
    if (type === 'deleted') this.#change(this.#entries.delete(key), type, key)
  }

  #change(sound: boolean, type: string, name: string, change = () => {}): void {
    if (!sound) throw new Error(`${type} ${name} was emitted, and did not follow from the events before`)
    change()
  }

  get all(): readonly string[] {
    return [
      ...[...this.#holds].map(([name, how]) => `${name} ${how}`),
      ...[...this.#waits].map(name => `${name} waits`),
      ...[...this.#entries].map(([key, what]) => `${key} ${what}`),
    ].sort()
  }
}

function truth(state: State): readonly string[] {
  const how = ({ status }: LeaseState) => (status === FROZEN ? ' frozen' : status === SUSPECT ? ' suspect' : '')
  const all: string[] = []
  for (const { name, grants, queue } of state.resources.values()) {
    for (const { lease, token } of grants) all.push(`${name} ${lease.id} #${token}${how(lease)}`)
    for (const { id } of queue) all.push(`${name} ${id} waits`)
  }
  for (const { key, value, lease } of state.entries.values()) all.push(`${key} ${lease.id}${how(lease)} = ${value}`)
  for (const { key, value } of state.free.values()) all.push(`${key} 0 = ${value}`)
  return all.sort()
}

test(`a watcher of a single name knows its holders, their tokens, its waiters and its registrations (${SEEDS} seeds)`, () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const state = createState()
    const stream = new Stream(seed)
    const mirror = new Mirror()
    for (let i = 1; i <= LENGTH; i++) {
      const events: Event[] = []
      const { index: applied, decisionHashA, decisionHashB } = state
      const header = { proposer: 5, seq: i, applied, decisionHash: [decisionHashA, decisionHashB] as const, wall: 1_000, rules: RULES }
      applyBatch(state, applied + 1, { ...header, proposals: [stream.next(state)] }, { events, timer() {} })
      for (const event of events) mirror.hear(event)
      expect(mirror.all, `seed ${seed}, command ${i}`).toEqual(truth(state))
    }
  }
})

test('a waiter for any of several resources is reported as withdrawn from the queues that granted nothing, after its grant', () => {
  const world = new World()
  const [one] = [world.acquire('a', 'p/1'), world.acquire('a', 'p/2')]
  const { lease } = world.queue('b', ['p/1', 'p/2'], { any: 1 })
  world.release(one.lease)
  expect(world.revisionEvents.filter(event => event.lease === lease).map(({ type, resource, cause }) => [type, resource, cause])).toEqual([
    ['granted', 'p/1', undefined],
    ['withdrawn', 'p/2', 'granted-elsewhere'],
  ])
})
