/** The clocks of simulated machines. */
import { expect, test } from 'vitest'
import { World } from '../../sim/world.ts'

test('the monotonic clock of a suspended machine stands still at once and never goes back; its uptime continues', async () => {
  const world = new World(1)
  const machine = world.machine('host', 1)
  const [now, up] = [machine.monotonic(), machine.uptime()]
  machine.suspend(1_000)
  await world.run(400)
  expect(machine.monotonic()).toBe(now)
  expect(machine.uptime()).toBe(up + 400)
  await world.run(1_500)
  expect([machine.monotonic() - now, machine.uptime() - up]).toEqual([500, 1_500])
})

test('a machine that is killed while it is suspended has a clock that runs again', async () => {
  const world = new World(1)
  const machine = world.machine('host', 1)
  const now = machine.monotonic()
  machine.suspend(1_000)
  await world.run(400)
  machine.kill()
  machine.revive()
  await world.run(1_500)
  expect(machine.monotonic() - now).toBe(1_100)
})
