/** Claims of folders and of what is in them exclude each other in both orders: the kernel decides, for tools and hooks alike. */
import { describe, expect, test } from 'vitest'
import { decide } from '../../src/guard/guard.ts'
import { locateBy } from '../../src/guard/locate.ts'
import { AgentTown } from '../support/agents.ts'
import { hookEvent } from '../support/hook-events.ts'

const PREFIX = 'repo/github.com/acme/app'
const workspace = { root: '/r', prefix: PREFIX }

/** What a hook decides about an edit of `src/server.ts`. */
async function edit(town: AgentTown, agent: string) {
  const context = { leases: town.connection().leases, agent, locate: locateBy(workspace.root, PREFIX) }
  return decide(hookEvent('claude-pre-edit', workspace.root), context)
}

describe('a claim of a folder', () => {
  test.each([
    ['a file in it', 'src', 'src/server.ts'],
    ['a folder in it', 'src', 'src/routes'],
    ['the whole repository', '.', 'src/server.ts'],
  ])('and one of %s exclude each other, in both orders', async (_, folder, inside) => {
    for (const [first, second] of [
      [folder, inside],
      [inside, folder],
    ] as const) {
      await using town = new AgentTown()
      const { agent: ann } = await town.begin('ann', { workspace })
      const { agent: bob } = await town.begin('bob', { workspace })
      await ann.claim([first], { purpose: 'move everything' })
      const queued = await bob.claim([second])
      expect(queued).toMatchObject({ status: 'queued', waitsFor: [{ holders: [{ holder: 'ann', purpose: 'move everything' }] }] })
      await ann.release()
      expect((await bob.claim([second])).status).toBe('held')
    }
  })

  test('leaves other folders alone', async () => {
    await using town = new AgentTown()
    const { agent: ann } = await town.begin('ann', { workspace })
    const { agent: bob } = await town.begin('bob', { workspace })
    await ann.claim(['src'])
    expect((await bob.claim(['src2/a.ts', 'docs'])).status).toBe('held')
  })

  test('is no obstacle for the same agent, above or below', async () => {
    await using town = new AgentTown()
    const { agent } = await town.begin('ann', { workspace })
    for (const name of ['src/a.ts', 'src', 'src/b.ts', '.']) expect((await agent.claim([name])).status).toBe('held')
  })

  test('is answered by a hook as by a tool', async () => {
    await using town = new AgentTown()
    const { agent: ann } = await town.begin('ann', { workspace })
    const { agent: bob } = await town.begin('bob', { workspace })
    await ann.claim(['src'])
    expect((await edit(town, 'ann')).allow).toBe(true)
    const denied = await edit(town, 'bob')
    expect([denied.allow, (await bob.claim(['src/server.ts'])).status]).toEqual([false, 'queued'])
    expect(denied.reason).toContain('held by ann (by its claim of src/)')
  })

  test('waits for an edit that a hook has allowed', async () => {
    await using town = new AgentTown()
    expect((await edit(town, 'ann')).allow).toBe(true)
    const { agent: bob } = await town.begin('bob', { workspace })
    expect(await bob.claim(['src'])).toMatchObject({ status: 'queued', waitsFor: [{ resource: `${PREFIX}/src/server.ts` }] })
  })

  test('of an idle agent goes to an agent that waits for a file in it', async () => {
    await using town = new AgentTown()
    const { agent: ann } = await town.begin('ann', { workspace, idle: '5m' })
    const { agent: bob } = await town.begin('bob', { workspace })
    await ann.claim(['src'])
    expect((await bob.claim(['src/a.ts'])).status).toBe('queued')
    for (let i = 0; i < 12; i++) await town.clock.advance(60_000)
    expect((await bob.claim(['src/a.ts'])).status).toBe('held')
  })

  test('by a pattern is refused with a sentence', async () => {
    await using town = new AgentTown()
    const { agent } = await town.begin('ann', { workspace })
    await expect(agent.claim(['lib/*.ts'])).rejects.toThrow('is a pattern, and a claim needs names: claim the folder')
  })
})
