/**
 * Worlds of agents that die, stall, forget, fall asleep and come back, in virtual time, with a referee that reads the log. Each agent does what
 * a seed says. A world that breaks a rule is printed with its seed, and repeats.
 */
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Agent } from '../../src/agent/agent.ts'
import { LeaseError } from '../../src/errors.ts'
import type { Leases } from '../../src/leases.ts'
import { type AgentPlace, AgentTown } from '../support/agents.ts'
import { runs } from '../support/runs.ts'

const NAMES = ['a', 'b', 'c']
const AGENTS = ['ann', 'bob', 'cid']
const MINUTE = 60_000
/** After the last process is gone, all clocks of its claims have run out by then. */
const ALL_CLOCKS = 16 * MINUTE

type Step =
  | { readonly do: 'claim' | 'release'; readonly agent: number; readonly names: readonly string[] }
  | { readonly do: 'mine' | 'kill' | 'forget' | 'silence' | 'answer'; readonly agent: number }
  | { readonly do: 'pass'; readonly ms: number }

const agent = fc.integer({ min: 0, max: AGENTS.length - 1 })
const names = fc.uniqueArray(fc.constantFrom(...NAMES), { minLength: 1, maxLength: 2 })
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constant('claim' as const), agent, names }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('release' as const), agent, names }) },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constantFrom('mine' as const, 'forget' as const, 'silence' as const, 'answer' as const), agent }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('kill' as const), agent }) },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('pass' as const), ms: fc.constantFrom(1_000, 15_000, 40_000, 70_000, 25 * MINUTE) }),
  },
)

/** What one agent was told: the names that it believes to hold, with their tokens, and by when that was confirmed. */
interface Belief {
  readonly tokens: Map<string, number>
  place: AgentPlace | undefined
  isSilent: boolean
}

class Referee {
  readonly #leases: Leases
  readonly #highest = new Map<string, number>()

  constructor(leases: Leases) {
    this.#leases = leases
  }

  /** No name has two holders, and tokens only grow. */
  async look(): Promise<void> {
    for (const name of NAMES) {
      const { value } = await this.#leases.read({ kind: 'resource', resource: name }, { consistent: true })
      const live = value.grants.filter(({ status }) => status !== 'frozen')
      expect(live.length, `holders of ${name}`).toBeLessThanOrEqual(1)
      for (const { token } of live) {
        expect(token).toBeGreaterThanOrEqual(this.#highest.get(name) ?? 0)
        this.#highest.set(name, token)
      }
    }
  }

  async holderOf(name: string): Promise<number | undefined> {
    const { value } = await this.#leases.read({ kind: 'resource', resource: name }, { consistent: true })
    return value.grants.find(({ status }) => status !== 'frozen')?.token
  }
}

/** What the agent believes must be true at the moment it is told: each answer is compared with the log, and each loss must have been announced. */
async function learn(belief: Belief, referee: Referee, told: Agent): Promise<void> {
  const { held, lost } = await told.mine()
  const notices = await told.notices()
  const now = new Map(held.flatMap(({ tokens }) => Object.entries(tokens)))
  for (const [name, token] of now) expect(await referee.holderOf(name), `${told.name} was told that it holds ${name}`).toBe(token)
  for (const [name, token] of belief.tokens) {
    if (now.get(name) === token) continue
    const announced = [...lost.flatMap(loss => loss.names), ...notices.flatMap(notice => notice.names)]
    expect(announced, `${told.name} lost ${name} (token ${token}) without a notice`).toContain(name)
  }
  belief.tokens.clear()
  for (const [name, token] of now) belief.tokens.set(name, token)
}

async function run(steps: readonly Step[]): Promise<void> {
  await using town = new AgentTown()
  const referee = new Referee(town.connection().leases)
  const beliefs: Belief[] = AGENTS.map(() => ({ tokens: new Map(), place: undefined, isSilent: false }))
  const living = async (i: number) => {
    const belief = beliefs[i]!
    belief.place ??= await town.begin(AGENTS[i]!, { idle: '20m' })
    return belief
  }
  for (const next of steps) {
    if (next.do === 'pass') await town.clock.advance(next.ms)
    else if (beliefs[next.agent]!.isSilent && next.do !== 'answer' && next.do !== 'kill')
      continue // its call would not be answered
    else await act(next, await living(next.agent))
    await referee.look()
  }
  for (const belief of beliefs) {
    if (belief.place === undefined) continue
    belief.place.lessor.answer()
    await town.clock.advance(30_000)
    await learn(belief, referee, belief.place.agent)
    kill(belief)
  }
  await town.clock.advance(ALL_CLOCKS)
  for (const name of NAMES) expect(await referee.holderOf(name), `${name} after all clocks ran out`).toBeUndefined()

  async function act(next: Exclude<Step, { readonly do: 'pass' }>, belief: Belief): Promise<void> {
    const { agent: acting, lessor } = belief.place!
    switch (next.do) {
      case 'kill':
        return kill(belief)
      case 'silence':
        belief.isSilent = true
        return lessor.stopAnswering()
      case 'answer':
        belief.isSilent = false
        return lessor.answer()
      case 'forget': {
        // A model that remembers nothing, or a hook in another process, finds what the agent has.
        await learn(belief, referee, acting)
        const { agent: blank } = await town.join(acting.name)
        const found = (await blank.mine()).held.flatMap(({ tokens }) => Object.entries(tokens))
        blank.detach()
        return expect(new Map(found)).toEqual(belief.tokens)
      }
      case 'mine':
        return learn(belief, referee, acting)
      case 'release': {
        await learn(belief, referee, acting)
        for (const name of (await acting.release(next.names)).released) belief.tokens.delete(name)
        return
      }
      case 'claim': {
        await learn(belief, referee, acting)
        try {
          const { status, tokens } = await acting.claim(next.names)
          if (status === 'held') for (const [name, token] of Object.entries(tokens)) belief.tokens.set(name, token)
        } catch (error) {
          expect(error, String(error)).toBeInstanceOf(LeaseError)
          expect((error as LeaseError).code).toMatch(/^(DEADLOCK|INVALID)$/)
        }
      }
    }
  }
}

/** The process is killed: nothing of it runs any more. A later step starts another one of that name. */
function kill(belief: Belief): void {
  belief.place?.agent.detach()
  belief.place?.lessor.answer()
  belief.place = undefined
  belief.isSilent = false
  belief.tokens.clear()
}

test('agents that die, stall and forget: one holder at a time, no loss without a notice, nothing left after the clocks', async () => {
  await fc.assert(fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 25 }), run), { numRuns: runs(80) })
})
