import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Agent } from '../../src/agent/agent.ts'
import { originPrefix, repositoryOf } from '../../src/agent/repository.ts'
import { decide, type GuardContext } from '../../src/guard/guard.ts'
import { locateBy, locateHere } from '../../src/guard/locate.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { hookEvent } from '../support/hook-events.ts'

const root = '/r'
const PREFIX = 'repo/github.com/acme/app'

function world() {
  const { leases, clock, log } = silentLessor({ holder: 'guard' })
  const as = (agent: string): GuardContext => ({ leases, agent, locate: locateBy(root, PREFIX) })
  const on = (agent: string, name: string) => decide(hookEvent(name, root), as(agent))
  const held = async () => (await leases.query('repo')).held.map(({ resource, holder }) => `${resource.slice(PREFIX.length + 1)} ${holder}`)
  return { leases, clock, log, on, held }
}

describe('before an edit', () => {
  test('a free path is claimed by itself, and the token is reported', async () => {
    const { on, held, leases } = world()
    const { allow, tokens } = await on('ann', 'claude-pre-edit')
    expect(allow).toBe(true)
    expect(await held()).toEqual(['src/server.ts ann'])
    const [grant] = (await leases.query('repo')).held
    expect(tokens).toEqual({ [grant!.resource]: grant!.token })
    expect(await on('ann', 'claude-pre-edit')).toMatchObject({ allow: true })
    expect(await held()).toEqual(['src/server.ts ann'])
  })

  test('a path that another agent holds is denied, with who, why, since when and how to queue, and leaves no place in the queue', async () => {
    const { on, held, leases, clock } = world()
    await on('ann', 'claude-pre-edit')
    await clock.advance(5_000)
    for (const name of ['claude-pre-edit', 'codex-pre-apply-patch', 'cursor-pre-write']) {
      const { allow, reason } = await on('bob', name)
      expect(allow).toBe(false)
      expect(reason).toMatch(
        /src\/server\.ts is held by ann, for: "Edit of src\/server\.ts", for 5 s.*claim with names \["name:repo\/github/,
      )
    }
    expect((await leases.query('repo')).pending).toEqual([])
    expect(await held()).toEqual(['src/server.ts ann'])
  })

  test('all paths of a patch are claimed, or none', async () => {
    const { on, held } = world()
    await on('bob', 'codex-pre-apply-patch')
    expect((await held()).length).toBe(5)
    expect((await on('ann', 'cursor-pre-write')).allow).toBe(false)
    await on('bob', 'codex-stop')
    expect(await held()).toEqual([])
    await on('ann', 'cursor-pre-write')
    expect((await on('bob', 'codex-pre-apply-patch')).allow).toBe(false)
    expect(await held()).toEqual(['src/server.ts ann'])
  })

  test('the claim of a folder covers what is in it: for its agent, and against others', async () => {
    const { on, held, leases } = world()
    await using ann = await Agent.join(leases, { name: 'ann' })
    await ann.claim([`${PREFIX}/src`], { purpose: 'move everything' })
    expect((await on('ann', 'claude-pre-edit')).allow).toBe(true)
    expect(await held()).toEqual(['src ann'])
    const { allow, reason } = await on('bob', 'claude-pre-edit')
    expect(allow).toBe(false)
    expect(reason).toMatch(/held by ann \(by its claim of src\/\), for: "move everything"/)
  })

  test('a folder in which another agent holds a file may not be deleted; its own files are no hindrance', async () => {
    const { leases, on } = world()
    const { session } = hookEvent('claude-pre-edit', root)
    const deletion = { ...hookEvent('cursor-pre-delete', root), session, paths: ['/r/src'] }
    const remove = (agent: string) => decide(deletion, { leases, agent, locate: locateBy(root, PREFIX) })
    await on('ann', 'claude-pre-edit')
    const { allow, reason } = await remove('bob')
    expect(allow).toBe(false)
    expect(reason).toMatch(/^leasehold: src\/server\.ts is held by ann, for/)
    expect((await leases.query('repo')).held.map(({ holder }) => holder)).toEqual(['ann'])
    expect((await remove('ann')).allow).toBe(true)
    expect((await on('bob', 'cursor-pre-write')).allow).toBe(false)
  })

  test('an edit whose paths are not known cannot be decided', async () => {
    const { leases } = world()
    const event = { ...hookEvent('claude-pre-edit', root), paths: [], problem: 'the tool Edit names no file' }
    await expect(decide(event, { leases, agent: 'ann', locate: locateBy(root, PREFIX) })).rejects.toThrow('the tool Edit names no file')
  })

  test('a sub-agent may write what its agent holds, and not what another sub-agent holds', async () => {
    const { on, held, leases } = world()
    await on('ann', 'claude-pre-edit')
    await using ann = await Agent.join(leases, { name: 'ann' })
    await ann.claim([`${PREFIX}/src/new.ts`])
    expect((await on('ann', 'claude-pre-write-subagent')).allow).toBe(true)
    await ann.release()
    expect((await on('ann', 'claude-pre-write-subagent')).allow).toBe(true)
    expect(await held()).toEqual(['src/new.ts ann/a7f3c21'])
    const event = { ...hookEvent('claude-pre-write-subagent', root), subAgent: 'other' }
    expect((await decide(event, { leases, agent: 'ann', locate: locateBy(root, PREFIX) })).allow).toBe(false)
    await on('ann', 'claude-subagent-stop')
    expect(await held()).toEqual([])
  })

  test('a place in the queue that the agent asked for itself is kept', async () => {
    const { on, leases } = world()
    await on('ann', 'claude-pre-edit')
    await using bob = await Agent.join(leases, { name: 'bob' })
    await bob.claim([`${PREFIX}/src/server.ts`])
    expect((await on('bob', 'claude-pre-edit')).allow).toBe(false)
    expect((await leases.query('repo')).pending.map(({ holder }) => holder)).toEqual(['bob'])
  })

  test('a path outside of the repository is not guarded', async () => {
    const { leases, held } = world()
    const event = { ...hookEvent('claude-pre-edit', root), paths: ['/etc/passwd', '../../x', '/r/.git/config'] }
    expect(await decide(event, { leases, agent: 'ann', locate: locateBy(root, PREFIX) })).toEqual({ allow: true })
    expect(await held()).toEqual([])
    expect((await leases.query('agents')).held).toEqual([])
  })

  test('a path that cannot be a name is an error that says so', async () => {
    const { leases } = world()
    const event = { ...hookEvent('claude-pre-edit', root), paths: ['/r/a\u0007b'] }
    await expect(decide(event, { leases, agent: 'ann', locate: locateBy(root, PREFIX) })).rejects.toMatchObject({ code: 'INVALID' })
  })
})

describe('the claims of an agent end', () => {
  test('with its turn, while its session stays; and with its session', async () => {
    const { on, held, leases } = world()
    await on('ann', 'claude-pre-edit')
    await on('ann', 'claude-stop')
    expect(await held()).toEqual([])
    expect((await leases.query('agents')).held.map(({ holder }) => holder)).toEqual(['ann'])
    await on('ann', 'claude-session-end')
    expect((await leases.query('agents')).held).toEqual([])
  })

  test('fifteen minutes after its last event', async () => {
    const { on, held, clock } = world()
    await on('ann', 'claude-pre-edit')
    await clock.advance(14 * 60_000)
    await on('ann', 'claude-pre-edit')
    await clock.advance(14 * 60_000)
    expect(await held()).toEqual(['src/server.ts ann'])
    await clock.advance(2 * 60_000)
    expect(await held()).toEqual([])
  })

  test('and the end of a turn opens no session', async () => {
    const { on, leases } = world()
    for (const name of ['claude-stop', 'claude-session-end', 'claude-subagent-stop', 'claude-pre-bash']) await on('ann', name)
    expect((await leases.query('agents')).held).toEqual([])
  })
})

test('after an edit whose claim another agent has got meanwhile, the agent is told', async () => {
  const { on, leases } = world()
  await on('ann', 'claude-pre-edit')
  await leases.revoke({ holder: 'ann' }, { force: true })
  await on('bob', 'claude-pre-edit')
  expect((await on('ann', 'claude-post-edit')).context).toMatch(
    /your claim of src\/server\.ts ended while you wrote it, and bob holds it now/,
  )
})

test('after its context was compacted, an agent is told what it holds', async () => {
  const { on } = world()
  expect(await on('ann', 'claude-session-start')).toEqual({ allow: true })
  await on('ann', 'claude-pre-edit')
  expect((await on('ann', 'claude-session-start')).context).toBe(`leasehold: as ann, you hold ${PREFIX}/src/server.ts.`)
})

test('an agent without a name is named by its process, else by its session', async () => {
  const { leases } = world()
  const event = hookEvent('claude-pre-edit', root)
  const locate = locateBy(root, PREFIX)
  await decide(event, { leases, locate, process: { pid: 4711, started: '1' } })
  expect((await leases.query('agents')).held.map(({ holder }) => holder)).toEqual(['agent-4711'])
  await decide({ ...event, paths: ['/r/b'] }, { leases, locate })
  expect((await leases.query('agents')).held.map(({ holder }) => holder)).toContain('claude-eb5b017405554601')
  await expect(decide({ ...event, session: '' }, { leases, locate })).rejects.toThrow(/name it with --agent/)
})

describe('a commit', () => {
  const commit = (paths: readonly string[], tokens: Record<string, number> = {}) =>
    ({ host: 'git', kind: 'commit', name: 'pre-commit', session: '', cwd: root, paths, tool: 'git', tokens }) as const

  test('of a path that another agent holds is refused; of its own, allowed', async () => {
    const { on, leases } = world()
    await on('ann', 'claude-pre-edit')
    const as = (agent: string) => ({ leases, agent, locate: locateBy(root, PREFIX) })
    expect(await decide(commit(['src/server.ts', 'README.md']), as('bob'))).toMatchObject({
      allow: false,
      reason: expect.stringMatching(/src\/server\.ts is held by ann/),
    })
    expect((await decide(commit(['src/server.ts', 'README.md']), as('ann'))).allow).toBe(true)
    await using eve = await Agent.join(leases, { name: 'eve' })
    await eve.claim([`${PREFIX}/docs`])
    expect((await decide(commit(['docs/a.md']), as('bob'))).reason).toContain('docs/a.md is held by eve (by its claim of docs/)')
  })

  test('of what was written under an older token than one already committed is refused', async () => {
    const { on, leases } = world()
    const as = (agent: string) => ({ leases, agent, locate: locateBy(root, PREFIX) })
    const { tokens: old } = await on('ann', 'claude-pre-edit')
    await on('ann', 'claude-stop')
    const { tokens: newer } = await on('bob', 'claude-pre-edit')
    await on('bob', 'claude-stop')
    expect((await decide(commit(['src/server.ts'], newer), as('bob'))).allow).toBe(true)
    expect(await decide(commit(['src/server.ts'], old), as('ann'))).toMatchObject({
      allow: false,
      reason: expect.stringMatching(/written under token \d+, and another agent has committed it under a newer one/),
    })
    expect((await decide(commit(['src/server.ts'], newer), as('bob'))).allow).toBe(true)
  })
})

describe('the repository of a path', () => {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'leasehold-repository-')))
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@t', ...args], { cwd: folder, stdio: 'pipe' })
  beforeAll(() => {
    git('init', '-q', 'main')
    git('-C', 'main', 'remote', 'add', 'origin', 'https://user:secret@GitHub.com/acme/app.git')
    git('-C', 'main', 'commit', '-q', '--allow-empty', '-m', 'x')
    git('-C', 'main', 'worktree', 'add', '-q', '../tree')
    git('init', '-q', 'alone')
    mkdirSync(join(folder, 'main', 'src'))
    symlinkSync(join(folder, 'main', 'src'), join(folder, 'link'))
  })
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  const found = async (path: string, cwd: string, kind: 'before' | 'commit' = 'before') =>
    (await locateHere()(path, { cwd, kind })).map(({ resource }) => resource)

  test('has the same names in every worktree, through links, and for files that do not exist yet', async () => {
    const there = [`${PREFIX}/src/deep/new.ts`]
    expect(await found(join(folder, 'main/src/deep/new.ts'), '/')).toEqual(there)
    expect(await found(join(folder, 'tree/src/deep/new.ts'), '/')).toEqual(there)
    expect(await found('deep/new.ts', join(folder, 'link'))).toEqual(there)
    expect(await found('src/../src/deep/new.ts', join(folder, 'tree'))).toEqual(there)
  })

  test('of a symbolic link is that of the link and of what it leads to; git commits the link itself', async () => {
    const at = (name: string) => join(folder, 'main', name)
    writeFileSync(at('src/real.ts'), '')
    symlinkSync('real.ts', at('src/link.ts'))
    symlinkSync('src/link.ts', at('second.ts'))
    symlinkSync(at('src/not-there.ts'), join(folder, 'outside.ts'))
    symlinkSync('circle.ts', at('circle.ts'))
    expect(await found(at('src/link.ts'), '/')).toEqual([`${PREFIX}/src/link.ts`, `${PREFIX}/src/real.ts`])
    expect(await found('second.ts', at(''))).toEqual([`${PREFIX}/second.ts`, `${PREFIX}/src/link.ts`, `${PREFIX}/src/real.ts`])
    expect(await found('outside.ts', folder)).toEqual([`${PREFIX}/src/not-there.ts`])
    expect(await found(at('second.ts'), '/', 'commit')).toEqual([`${PREFIX}/second.ts`])
    await expect(found(at('circle.ts'), '/')).rejects.toThrow(/more than 40 symbolic links/)
  })

  test('without an origin is named by its folder on this machine, and outside of every repository there is none', async () => {
    const { root, prefix } = (await repositoryOf(join(folder, 'alone', 'x')))!
    expect({ root, prefix }).toEqual({ root: join(folder, 'alone'), prefix: `repo/local/${hostname()}${join(folder, 'alone')}` })
    expect(await found(join(folder, 'x.ts'), '/')).toEqual([])
  })

  test.each([
    ['git@github.com:acme/app.git', PREFIX],
    ['ssh://git@github.com:22/acme/app.git/', PREFIX],
    ['https://github.com/acme/app', PREFIX],
    ['https://token@github.com/acme/app.git', PREFIX],
    ['../other', undefined],
    ['/srv/git/app.git', undefined],
    ['file:///srv/git/app.git', undefined],
  ])('with the origin %s has the prefix %s', (origin, prefix) => {
    expect(originPrefix(origin)).toBe(prefix)
  })
})
