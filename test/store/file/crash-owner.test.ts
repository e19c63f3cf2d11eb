import { isDeepStrictEqual } from 'node:util'
import { expect, test } from 'vitest'
import { applyBatch, decodeBatch } from '../../../src/kernel/codec/batch.ts'
import { StateLoader, stateHash } from '../../../src/kernel/codec/snapshot.ts'
import type { Effects } from '../../../src/kernel/rule/effects.ts'
import { createState, type State } from '../../../src/kernel/state.ts'
import { readFrames } from '../../../src/replica/frame.ts'
import { FileStore } from '../../../src/store/file/file.ts'
import { type Position, START } from '../../../src/store.ts'
import { Child, folder } from '../../support/crash/child.ts'

const CYCLES = 52

/** The acknowledgements that this process received from the owner. */
interface Acknowledged {
  readonly name: string
  readonly lease: number
  readonly tokens: readonly number[]
  renewed: boolean
  releasing: boolean
  released: boolean
}

/** Applies every record of the log, over all processes that owned it. */
class Replay {
  readonly state = createState()
  #position: Position = START

  /** Reads the new records, and replays the newest snapshot with the records after it; both states must be the same. */
  async followAndCompare(path: string): Promise<void> {
    await using store = new FileStore({ path })
    const { snapshot, head } = await store.open()
    this.#position = await follow(store, this.state, this.#position)
    expect(this.#position).toEqual(head)
    if (snapshot === undefined) return
    const loader = new StateLoader()
    for await (const chunk of readFrames(snapshot.bytes)) loader.add(chunk)
    const state = loader.finish()
    await follow(store, state, snapshot.position)
    expect(stateHash(state)).toBe(stateHash(this.state))
  }
}

async function follow(store: FileStore, state: State, position: Position): Promise<Position> {
  const effects: Effects = { events: [], timer: () => {} }
  for (;;) {
    const read = await store.read(position)
    if (read.kind !== 'records') throw new Error(`the log cannot be read from ${position.index}: ${read.kind}`)
    if (read.records.length === 0) return position
    for (const record of read.records) {
      applyBatch(state, record.position.index, decodeBatch(record.bytes), effects)
      effects.events.length = 0
      position = record.position
    }
  }
}

/**
 * An acknowledged lease is there, complete. A released one is gone. A request without an answer took effect completely or not at all.
 * One expectation for all leases: an `expect` for each takes most of the time of this test.
 */
function compare(state: State, leases: ReadonlyMap<number, Acknowledged>): void {
  const wrong: unknown[] = []
  const there = new Map([...state.leases.values()].map(lease => [lease.id, lease]))
  for (const { name, lease, tokens, renewed, releasing, released } of leases.values()) {
    const found = there.get(lease)
    if (released && found !== undefined) wrong.push(`${name} was released, and is there`)
    // Its first term is 30 s. Without a renewal it may have expired by now.
    if (!renewed || releasing) continue
    const granted = found?.grants.map(({ token }) => token)
    if (!isDeepStrictEqual(granted, tokens)) wrong.push({ acknowledged: name, tokens, granted })
  }
  for (const { holder, grants, extras } of there.values()) {
    const resources = grants.map(({ resource }) => resource.name)
    const entries = [...(extras?.entries ?? [])].map(key => [key, state.entries.get(key)?.value])
    const whole = [[`a/${holder.name}`, `b/${holder.name}`], [[`e/${holder.name}`, holder.name]]]
    if (!isDeepStrictEqual([resources, entries], whole)) wrong.push({ incomplete: holder.name, resources, entries })
  }
  expect(wrong).toEqual([])
  expect(state.entries.size).toBe(there.size)
  expect(state.resources.size).toBe(there.size * 2)
}

test(`an owner killed ${CYCLES} times under load loses nothing that it acknowledged`, async () => {
  await using place = await folder()
  const replay = new Replay()
  const leases = new Map<number, Acknowledged>()
  let highest = 0
  let acknowledged = 0
  let next = new Child()
  for (let life = 0; life < CYCLES; life++) {
    await using child = next
    if (life < CYCLES - 1) next = new Child() // the next process starts while this one works
    const enough = 30 + ((life * 7_919) % 250)
    let heard = 0
    const killed = new Promise<void>(resolve => {
      child.onTold = (what, name, lease, tokens) => {
        const one = leases.get(lease as number)
        if (what === 'granted') {
          expect(one).toBe(undefined)
          for (const token of tokens as number[]) {
            expect(token).toBeGreaterThan(highest)
            highest = token
          }
          leases.set(lease as number, {
            name: name as string,
            lease: lease as number,
            tokens: tokens as number[],
            renewed: false,
            releasing: false,
            released: false,
          })
        } else if (what === 'renewed') one!.renewed = true
        else if (what === 'releasing') one!.releasing = true
        else one!.released = true
        acknowledged++
        if (++heard === enough) resolve()
      }
    })
    await child.ask('open', { path: place.path, owned: true, snapshotRecords: 250 })
    child.ask('pour', { life, lines: 16, most: enough + 60 }).catch(() => {})
    await killed
    await child.kill()
    await replay.followAndCompare(place.path)
    compare(replay.state, leases)
  }
  expect(acknowledged).toBeGreaterThan(CYCLES * 100)
})
