/** Mistakes planted one by one into a copy of the built code: the rule that each breaks must be noticed. */
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type AgentCode, AgentTown } from '../support/agents.ts'

const DIST = fileURLToPath(new URL('../../dist/', import.meta.url))
const MINUTE = 60_000
let place: string
let copies = 0

beforeAll(() => {
  place = mkdtempSync(join(tmpdir(), 'leasehold-planted-'))
})

afterAll(() => rmSync(place, { recursive: true, force: true }))

type Scenario = (town: AgentTown) => Promise<boolean>

type Begun = Awaited<ReturnType<AgentTown['begin']>>

/** While `one` cannot reach the server for longer than its claim lasts, `two` claims `names[1]` and gives it back. Returns whether `one` has lost `names[0]`. */
async function isLostMeanwhile(town: AgentTown, one: Begun, two: Begun, names: readonly [string, string]): Promise<boolean> {
  await one.agent.claim([names[0]])
  await two.agent.claim([names[1]])
  one.lessor.stopAnswering()
  await town.clock.advance(70_000)
  await two.agent.release()
  one.lessor.answer()
  await town.clock.advance(30_000)
  return (await one.agent.mine()).held.length === 0
}

/** Each returns whether its rule held. */
const RULES = {
  'the same names again are the same claim': async town => {
    const { agent } = await town.begin('one')
    const { tokens } = await agent.claim(['a'])
    return (await agent.claim(['a'])).tokens.a === tokens.a
  },
  'two processes of one agent have one place in a queue': async town => {
    const { agent: other } = await town.begin('other')
    await other.claim(['a'])
    const { agent } = await town.begin('one')
    const { agent: hook } = await town.join('one')
    await Promise.all([agent.claim(['a']), hook.claim(['a'])])
    return (await other.look('a')).names[0]?.waiters.length === 1
  },
  'a claim that another holder had meanwhile is lost': async town => {
    return isLostMeanwhile(town, await town.begin('one'), await town.begin('two'), ['a', 'a'])
  },
  'a claim of a folder in which another holder had a file meanwhile is lost': async town => {
    const workspace = { root: '/r', prefix: 'repo/a' }
    return isLostMeanwhile(town, await town.begin('one', { workspace }), await town.begin('two', { workspace }), ['src', 'src/a.ts'])
  },
  'a revoked claim is not resumed': async town => {
    const { agent, leases } = await town.begin('one')
    await agent.claim(['a'])
    await leases.revoke({ prefix: 'a' }, { force: true })
    return (await agent.mine()).held.length === 0
  },
  'a loss is announced': async town => {
    const { agent, leases } = await town.begin('one')
    await agent.claim(['a'])
    await leases.revoke({ prefix: 'a' }, { force: true })
    return (await agent.mine()).lost.length === 1
  },
  'an idle agent yields to a waiter': async town => {
    const { agent: one } = await town.begin('one', { idle: '20m' })
    const { agent: two } = await town.begin('two', { idle: '4h' })
    await one.claim(['a'])
    await two.claim(['a'])
    await town.clock.advance(22 * MINUTE)
    return (await two.mine()).held.length === 1
  },
  'an active agent does not yield': async town => {
    const { agent: one } = await town.begin('one', { idle: '20m' })
    const { agent: hook } = await town.join('one')
    const { agent: two } = await town.begin('two', { idle: '4h' })
    await one.claim(['a'])
    await two.claim(['a'])
    for (let i = 0; i < 3; i++) {
      await town.clock.advance(15 * MINUTE)
      await hook.noteActivity()
    }
    return (await two.mine()).held.length === 0
  },
  'a grant to an agent without a process has its whole term': async town => {
    const { agent } = await town.join('one')
    const { agent: two } = await town.begin('two')
    await agent.claim(['a'])
    await town.clock.advance(5 * MINUTE)
    return (await two.claim(['a'])).status === 'queued'
  },
  'a sub-agent is kept alive by the calls of the agent above': async town => {
    const { agent: one } = await town.join('one')
    const { agent: two } = await town.begin('two')
    const child = await one.child('x')
    await child.claim(['a'])
    for (let i = 0; i < 3; i++) {
      await town.clock.advance(10 * MINUTE)
      await one.mine()
    }
    return (await two.claim(['a'])).status === 'queued'
  },
  'the end of an agent frees what its sub-agents hold': async town => {
    const { agent: one } = await town.begin('one')
    const { agent: two } = await town.begin('two')
    const child = await one.child('x')
    await child.claim(['a'])
    await one.end()
    return (await two.claim(['a'])).status === 'held'
  },
  'an agent ends with its process': async town => {
    const { agent: one } = await town.begin('one', { process: { pid: 7, started: '1' }, isAlive: () => false })
    const { agent: two } = await town.begin('two')
    await one.claim(['a'])
    await town.clock.advance(2_000)
    return (await two.claim(['a'])).status === 'held'
  },
  'two live agents do not share a name': async town => {
    const { agent: one } = await town.begin('one')
    const { agent: two } = await town.begin('one')
    return one.name !== two.name
  },
  'a claim ends by its cap': async town => {
    const { agent } = await town.begin('one', { cap: '1h' })
    await agent.claim(['a'])
    await town.clock.advance(61 * MINUTE)
    return (await agent.mine()).held.length === 0
  },
} satisfies Record<string, Scenario>

interface PlantedMistake {
  readonly rule: keyof typeof RULES
  readonly file: string
  readonly find: string
  readonly put: string
}

const MISTAKES: readonly PlantedMistake[] = [
  { rule: 'the same names again are the same claim', file: 'claiming.js', find: 'if (missing.length === 0)', put: 'if (false)' },
  {
    rule: 'two processes of one agent have one place in a queue',
    file: 'claiming.js',
    find: 'if (!grants.some(isOwn) && !isWaitingTwice)',
    put: 'if (true)',
  },
  { rule: 'a claim that another holder had meanwhile is lost', file: 'resume.js', find: 'if (taken === undefined)', put: 'if (true)' },
  {
    rule: 'a claim of a folder in which another holder had a file meanwhile is lost',
    file: 'resume.js',
    find: 'names.isPath(resource) ?',
    put: 'false ?',
  },
  {
    rule: 'a revoked claim is not resumed',
    file: 'claim-book.js',
    find: "const hasMerelyLapsed = cause === 'lapsed'",
    put: "const hasMerelyLapsed = cause !== 'cap'",
  },
  { rule: 'a loss is announced', file: 'claim-book.js', find: 'await this.#explain(ended);', put: ';' },
  {
    rule: 'an idle agent yields to a waiter',
    file: 'claim-book.js',
    find: 'if (!isStillIdle())',
    put: 'if (true)',
  },
  { rule: 'an active agent does not yield', file: 'activity.js', find: 'this.note(readMark(value)?.underWay);', put: '' },
  {
    rule: 'a grant to an agent without a process has its whole term',
    file: 'claim-book.js',
    find: 'log.renew([granted.lease])',
    put: 'Promise.resolve()',
  },
  {
    rule: 'a sub-agent is kept alive by the calls of the agent above',
    file: 'session-tree.js',
    find: '...children.flatMap(sessionsOf)',
    put: '',
  },
  {
    rule: 'the end of an agent frees what its sub-agents hold',
    file: 'claim-book.js',
    find: 'await log.release(this.#session.lease, stopped);',
    put: 'await log.release(this.#session.lease);',
  },
  { rule: 'an agent ends with its process', file: 'agent.js', find: 'if (isAlive())', put: 'if (true)' },
  {
    rule: 'two live agents do not share a name',
    file: 'session.js',
    find: 'if (present !== undefined && isSameProcess(present.process, request.process) && (await isOwn(log, present)))',
    put: 'if (present !== undefined)',
  },
  { rule: 'a claim ends by its cap', file: 'claim-book.js', find: 'maxLife: this.#options.cap', put: '' },
]

/** A copy of the build, with or without a mistake. */
async function codeWith(mistake?: PlantedMistake): Promise<AgentCode> {
  // Named as the build, so that Node loads it (`BUILT` in test/support/built-source.ts). All but the code of agents is the build itself, which is loaded once.
  const copy = join(place, `${copies++}`, 'dist')
  cpSync(join(DIST, 'agent'), join(copy, 'agent'), { recursive: true, filter: from => !from.endsWith('.d.ts') })
  for (const name of readdirSync(DIST)) if (name !== 'agent') symlinkSync(join(DIST, name), join(copy, name))
  writeFileSync(join(copy, 'package.json'), '{"type":"module"}')
  if (mistake !== undefined) {
    const path = join(copy, 'agent', mistake.file)
    const text = readFileSync(path, 'utf8')
    expect(text.split(mistake.find).length - 1, `${mistake.find} in ${mistake.file}`).toBe(1)
    writeFileSync(
      path,
      text.replace(mistake.find, () => mistake.put),
    )
  }
  const load = (file: string) => import(/* @vite-ignore */ pathToFileURL(join(copy, file)).href)
  const [{ Agent }, { silentLessor }, { ManualClock }] = await Promise.all([
    load('agent/agent.js'),
    load('testing/in-memory.js'),
    load('testing/manual-clock.js'),
  ])
  return { Agent, silentLessor, ManualClock }
}

async function holds(rule: keyof typeof RULES, code: AgentCode): Promise<boolean> {
  await using town = new AgentTown(code)
  return await RULES[rule](town)
}

describe('without a mistake', () => {
  test('every rule holds', async () => {
    const code = await codeWith()
    for (const rule of Object.keys(RULES) as (keyof typeof RULES)[]) expect(await holds(rule, code), rule).toBe(true)
  })

  test('every rule has a mistake that breaks it', () => {
    expect(new Set(MISTAKES.map(({ rule }) => rule))).toEqual(new Set(Object.keys(RULES)))
  })
})

test.each(MISTAKES)('a mistake in $file is noticed: $rule', async mistake => {
  const code = await codeWith(mistake)
  // A mistake may also show as a refusal of the kernel.
  expect(await holds(mistake.rule, code).catch(error => (error as { readonly name?: string }).name)).not.toBe(true)
})
