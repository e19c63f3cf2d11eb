/** The referee of agents: when an agent may be called idle. */
import { expect, test } from 'vitest'
import { AGENT_TERMS, AgentReferee } from '../../sim/agent-referee.ts'
import { World } from '../../sim/world.ts'
import { createState } from '../../src/kernel/state.ts'

/** Whether it is a mistake that an agent, whose last call began at 0 and returned at `returned`, loses a claim as idle at `at`. */
async function isTooEarly(returned: number, at: number): Promise<boolean> {
  const world = new World(1)
  const referee = new AgentReferee(world, { state: createState(), losses: 0 })
  await world.run(returned)
  referee.active('a', 0)
  await world.run(at)
  referee.yields('a', ['n'])
  const { message } = await world.run(at).then(
    () => new Error(),
    (error: Error) => error,
  )
  return message.includes('after it was active')
}

test('a call counts as activity from its beginning, however long it waits', async () => {
  expect(await isTooEarly(3_000, AGENT_TERMS.idle * 0.7)).toBe(false)
  expect(await isTooEarly(3_000, AGENT_TERMS.idle * 0.69)).toBe(true)
})
