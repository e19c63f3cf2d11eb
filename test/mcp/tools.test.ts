/** What every conversation pays for the tools, and what they say. */
import { describe, expect, test } from 'vitest'
import type { Agent } from '../../src/agent/agent.ts'
import { ARGUMENTS, RESULTS } from '../../src/mcp/schemas.ts'
import { INSTRUCTIONS, TOOLS, type ToolName } from '../../src/mcp/tools.ts'
import { AgentTown } from '../support/agents.ts'

const NAMES = Object.keys(TOOLS) as ToolName[]

test('the tool list has at most 8,000 characters, with its instructions', () => {
  const list = NAMES.map(name => {
    const { title, description, readOnly, destructive } = TOOLS[name]
    const annotations = { readOnlyHint: readOnly, destructiveHint: destructive, idempotentHint: true, openWorldHint: false }
    return { name, title, description, inputSchema: ARGUMENTS[name], outputSchema: RESULTS[name], annotations }
  })
  expect(JSON.stringify(list).length + INSTRUCTIONS.length).toBeLessThanOrEqual(8_000)
})

test.each(NAMES)('the description of %s begins with when to call it', name => {
  expect(TOOLS[name].description).toMatch(/^Call it (before|first|as soon as|to|when) /)
})

describe('what a claim says about its end is true', () => {
  const ends = async (agent: Agent) => {
    const { ends: texts } = (await TOOLS.claim.run(
      agent,
      { names: ['x'], purpose: '' },
      { now: 0, signal: new AbortController().signal },
    )) as {
      readonly ends: readonly string[]
    }
    return texts
  }
  const seconds = (texts: readonly string[], after: RegExp) => {
    const text = texts.find(one => after.test(one))!
    const parts = [...text.matchAll(/(\d+) (min|s)\b/g)].map(([, count, unit]) => Number(count) * (unit === 'min' ? 60 : 1))
    return parts.reduce((sum, part) => sum + part, 0)
  }

  test('for an agent whose process is gone', async () => {
    await using town = new AgentTown()
    const { agent, lessor } = await town.begin('ann')
    const said = seconds(await ends(agent), /process is gone/)
    lessor.stopAnswering()
    await town.clock.advance(1_000 * said)
    const { leases } = town.connection()
    expect(said).toBeGreaterThan(0)
    expect((await leases.query('x')).held).toEqual([])
  })

  test('for a sub-agent, when the process of its agent is gone', async () => {
    await using town = new AgentTown()
    const { agent, lessor } = await town.begin('ann')
    await town.clock.advance(19_000)
    const child = await agent.child('tests')
    const said = seconds(await ends(child), /agent that you work for/)
    lessor.stopAnswering()
    const { leases } = town.connection()
    await town.clock.advance(55_000)
    expect((await leases.query('x')).held).toHaveLength(1)
    await town.clock.advance(1_000 * said - 55_000)
    expect((await leases.query('x')).held).toEqual([])
  })
})
