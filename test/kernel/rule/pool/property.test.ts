/** Random commands for pools, among all others: every table stays what the entries, leases and policies say. */
import { expect, test } from 'vitest'
import { StateLoader, saveState, stateHash } from '../../../../src/kernel/codec/snapshot.ts'
import type { State } from '../../../../src/kernel/state.ts'
import { check } from '../../../support/kernel/invariant.ts'
import { Stream } from '../../../support/kernel/stream.ts'
import { World } from '../../../support/kernel/world.ts'

const SEEDS = [1, 2, 3, 4]
const STEPS = 1_000

function copy(state: State): State {
  const loader = new StateLoader()
  for (const chunk of saveState(state)) loader.add(chunk)
  return loader.finish()
}

test.each(SEEDS)('after every command of stream %i all tables of pools are right', seed => {
  const world = new World({ strict: false })
  const stream = new Stream(seed, { calm: seed % 2 === 0, pools: true })
  let waited = 0
  for (let i = 0; i < STEPS; i++) {
    const { command, key } = stream.next(world.state)
    const outcome = world.do(command, key === undefined ? {} : { key })
    check(world.state)
    if (command.kind !== 'acquire' || command.pool === undefined) continue
    if (outcome.kind === 'queued') waited++
  }
  const granted = world.events.filter(({ type, resource = '' }) => type === 'granted' && resource.startsWith('g/'))
  expect(granted.length).toBeGreaterThan(STEPS / 200)
  expect(waited).toBeGreaterThan(STEPS / 50)
})

test.each(SEEDS)('a snapshot of stream %i at any moment continues as the state that it was taken of', seed => {
  const [world, later] = [new World({ strict: false }), new World({ strict: false })]
  const stream = new Stream(100 + seed, { calm: seed % 2 === 0, pools: true })
  for (let i = 0; i < STEPS; i++) {
    if (i % 40 === 0) {
      later.state = copy(world.state)
      check(later.state)
      expect(stateHash(later.state)).toBe(stateHash(world.state))
    }
    const { command, key } = stream.next(world.state)
    const from = { ...(key !== undefined && { key }) }
    expect(later.do(command, from)).toEqual(world.do(command, from))
  }
  expect(stateHash(later.state)).toBe(stateHash(world.state))
})
