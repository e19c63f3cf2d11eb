import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { Place } from '../../support/cli.ts'
import { rawEvent } from '../../support/hook-events.ts'

/** A repository with a worktree. */
function repository(here: Place): { readonly main: string; readonly tree: string; git(...args: string[]): string } {
  const main = here.file('main')
  const tree = here.file('tree')
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@t', ...args], { cwd: main, encoding: 'utf8', stdio: 'pipe' })
  mkdirSync(main, { recursive: true })
  git('init', '-q')
  git('remote', 'add', 'origin', 'git@github.com:acme/app.git')
  git('commit', '-q', '--allow-empty', '-m', 'first')
  git('worktree', 'add', '-q', tree)
  return { main, tree, git }
}

/** The URL of a server that ends with the place. */
async function serve(here: Place): Promise<string> {
  const server = here.start(['serve', '--listen', '127.0.0.1:0', '--store', `file:${here.file('served.db')}`])
  const [, address] = await server.printed(/(127\.0\.0\.1:\d+)/)
  return `leasehold://${address}`
}

describe('guard', () => {
  test('claims and denies over a server, and without one, the same', async () => {
    await using here = new Place()
    const url = await serve(here)
    const { main, tree } = repository(here)
    for (const store of [url.replace('leasehold:', 'http:'), url, `file:${here.file('plain.db')}`]) {
      const ask = (agent: string, name: string, root: string) =>
        here.run(['guard', '--host', name.split('-')[0]!, '--store', store, '--agent', `${agent}-${store.length}`], {
          input: JSON.stringify(rawEvent(name, root)),
        })
      expect(await ask('ann', 'claude-pre-edit', main)).toMatchObject({ code: 0, stdout: '', stderr: '' })
      const denied = await ask('bob', 'codex-pre-apply-patch', tree)
      expect(denied).toMatchObject({ code: 0, stderr: '' })
      expect(JSON.parse(denied.stdout)).toMatchObject({
        hookSpecificOutput: {
          permissionDecision: 'deny',
          permissionDecisionReason: expect.stringMatching(/src\/server\.ts is held by ann-/),
        },
      })
      expect(await ask('ann', 'claude-stop', main)).toMatchObject({ code: 0, stdout: '', stderr: '' })
      expect(await ask('bob', 'cursor-pre-write', tree)).toMatchObject({ code: 0, stdout: '{"permission":"allow"}\n', stderr: '' })
      await ask('bob', 'cursor-session-end', tree)
    }
  })

  test('denies a write through a symbolic link, also one in no repository, and records the tokens where the file is', async () => {
    await using here = new Place()
    const url = await serve(here)
    const { main } = repository(here)
    mkdirSync(join(main, 'src'))
    symlinkSync('server.ts', join(main, 'src/link.ts'))
    symlinkSync(join(main, 'src/server.ts'), here.file('outside.ts'))
    const write = (agent: string, path: string) =>
      here.run(['guard', '--store', url, '--agent', agent, '--fail-closed'], {
        input: JSON.stringify({ ...rawEvent('claude-pre-edit', main), tool_input: { file_path: path } }),
      })
    for (const path of [join(main, 'src/link.ts'), here.file('outside.ts')]) {
      expect(await write('ann', path)).toMatchObject({ code: 0, stdout: '', stderr: '' })
      expect(JSON.parse((await write('bob', join(main, 'src/server.ts'))).stdout)).toMatchObject({
        hookSpecificOutput: { permissionDecision: 'deny' },
      })
      expect(JSON.parse((await write('bob', path)).stdout).hookSpecificOutput.permissionDecisionReason).toMatch(/is held by ann/)
      expect(readFileSync(join(main, '.git/leasehold-tokens'), 'utf8')).toMatch(/ repo\/github\.com\/acme\/app\/src\/server\.ts\n/)
      await here.run(['guard', '--store', url, '--agent', 'ann'], { input: JSON.stringify(rawEvent('claude-stop', main)) })
      rmSync(join(main, '.git/leasehold-tokens'))
    }
  })

  test('allows with a loud warning if it cannot decide, and denies with --fail-closed', async () => {
    await using here = new Place()
    const { main } = repository(here)
    const away = ['guard', '--store', 'http://127.0.0.1:1', '--agent', 'ann']
    const input = JSON.stringify(rawEvent('claude-pre-edit', main))
    const open = await here.run(away, { input })
    expect(open).toMatchObject({ code: 0, stderr: expect.stringMatching(/THIS EDIT IS NOT GUARDED.*127\.0\.0\.1:1/) })
    expect(JSON.parse(open.stdout)).toEqual({ systemMessage: expect.stringMatching(/THIS EDIT IS NOT GUARDED/) })
    const closed = await here.run([...away, '--fail-closed'], { input })
    expect(JSON.parse(closed.stdout)).toMatchObject({ hookSpecificOutput: { permissionDecision: 'deny' } })
    expect((await here.run(away, { input: `\uFEFF${input}` })).stderr).toMatch(/cannot be asked/) // it was read
    expect(await here.run(away, { input: 'not json' })).toMatchObject({ code: 0, stdout: '', stderr: expect.stringMatching(/NOT GUARDED/) })
    expect((await here.run([...away, '--fail-closed'], { input: '{}' })).code).toBe(2)
    expect((await here.run(['guard', '--host', 'emacs'], { input })).code).toBe(64)
    expect((await here.run(['guard', '--help'])).stdout).toMatch(/--fail-closed/)
  })

  test('the claims of an agent are free soon after its process has died', async () => {
    await using here = new Place()
    const url = await serve(here)
    const { main } = repository(here)
    writeFileSync(here.file('event.json'), JSON.stringify(rawEvent('claude-pre-edit', main)))
    const program = join(import.meta.dirname, '../../../dist/cli/leasehold.js')
    // An agent that starts its hook through a shell, and lives on.
    const script = `require('node:child_process').execSync(process.argv[1], { stdio: 'inherit' }); console.log('ready'); setInterval(() => {}, 1000)`
    const hook = `'${process.execPath}' '${program}' guard --store ${url} < '${here.file('event.json')}'`
    const agent = here.spawn(process.execPath, ['-e', script, hook])
    await agent.printed(/ready/)
    const held = async () => (await here.json('ls', 'repo', '--store', url)) as unknown as readonly { holder: string }[]
    expect(JSON.stringify(await held())).toContain(`agent-${agent.process.pid}`)
    agent.process.kill('SIGKILL')
    await agent.finished
    await expect.poll(async () => JSON.stringify(await held()), { interval: 200 }).not.toContain('agent-')
  })
})

describe('init', () => {
  test('shows what it would write, writes it after yes, and takes it out again byte for byte', async () => {
    await using here = new Place()
    const { main } = repository(here)
    const init = (...args: string[]) =>
      here.run(['init', ...args, '--store', 'http://127.0.0.1:7420', '--command', 'leasehold'], { cwd: main })
    const path = join(main, '.claude', 'settings.json')
    const shown = await init('claude')
    expect(shown.code).toBe(1)
    expect(shown.stdout).toMatch(
      /settings\.json \(a new file\)[\s\S]*leasehold guard --store http:\/\/127\.0\.0\.1:7420 --host claude[\s\S]*Nothing was changed/,
    )
    expect(existsSync(path)).toBe(false)
    expect((await init('claude', '--yes')).stdout).toMatch(/Written\..*leasehold init claude --remove/)
    expect((await init('claude', '--yes')).stdout).toMatch(/in place already/)
    expect((await init('claude', '--remove', '--yes')).stdout).toMatch(/Removed/)
    expect(existsSync(path)).toBe(false)
    mkdirSync(join(main, '.claude'))
    const theirs = '{ "model":"opus",\n "hooks": {"Stop": [ {"hooks":[]} ]} }'
    writeFileSync(path, theirs)
    await init('claude', '--yes')
    expect(readFileSync(path, 'utf8')).toContain('leasehold guard')
    expect((await init('claude', '--remove')).code).toBe(1)
    expect(readFileSync(path, 'utf8')).toContain('leasehold guard')
    await init('claude', '--remove', '--yes')
    expect(readFileSync(path, 'utf8')).toBe(theirs)
    writeFileSync(path, '{ // mine\n}')
    expect(await init('claude', '--yes')).toMatchObject({
      code: 78,
      stderr: expect.stringMatching(/cannot be edited[\s\S]*Nothing was changed/),
    })
    expect(readFileSync(path, 'utf8')).toBe('{ // mine\n}')
    expect((await init('emacs')).code).toBe(64)
  })

  test.each(['', '{}\n', '{\n\t"hooks": {}\n}\n', '{ "hooks": { "Stop": [ ] } }', '{"mcpServers":{}}'])(
    'gives back every byte of %j, also after a second run, and leaves no folder that it has made',
    async theirs => {
      await using here = new Place()
      const { main } = repository(here)
      mkdirSync(join(main, '.gemini'))
      const init = (...args: string[]) =>
        here.run(['init', 'gemini', 'cursor', ...args, '--yes', '--no-server', '--command', 'leasehold'], { cwd: main })
      const path = join(main, '.gemini', 'settings.json')
      writeFileSync(path, theirs)
      await init()
      const written = readFileSync(path, 'utf8')
      expect(written).toContain('leasehold guard')
      expect((await init()).stdout).toMatch(/in place already/)
      // With another name, all is written again.
      await init('--agent', 'ann')
      expect(readFileSync(path, 'utf8')).toContain('--agent ann')
      await init()
      expect(readFileSync(path, 'utf8')).toBe(written)
      await init('--remove')
      expect(readFileSync(path, 'utf8')).toBe(theirs)
      expect(existsSync(join(main, '.cursor'))).toBe(false)
      // What the user has written since stays.
      await init()
      writeFileSync(path, readFileSync(path, 'utf8').replace('{', '{ "theme": "dark",'))
      await init('--remove')
      expect(readFileSync(path, 'utf8')).toMatch(/^\{ "theme": "dark"/)
      expect(readFileSync(path, 'utf8')).not.toContain('leasehold')
    },
  )

  test('the hooks of git refuse a commit and a push of what another agent holds', async () => {
    await using here = new Place()
    const url = await serve(here)
    const { main, tree, git } = repository(here)
    const program = `'${process.execPath}' '${join(import.meta.dirname, '../../../dist/cli/leasehold.js')}'`
    const there = join(main, '.git', 'hooks', 'pre-push')
    writeFileSync(there, '#!/bin/sh\ncat > pushed-refs\n', { mode: 0o755 })
    const init = (...args: string[]) => here.run(['init', 'git', ...args, '--store', url, '--command', program], { cwd: main })
    expect(await init('--yes')).toMatchObject({ code: 0 })
    const edit = (agent: string, root: string, name = 'claude-pre-edit') =>
      here.run(['guard', '--host', 'claude', '--store', url, '--agent', agent], { input: JSON.stringify(rawEvent(name, root)) })
    const commit = (agent: string, cwd: string, ...args: string[]) =>
      here.spawn('git', ['-c', 'user.name=t', '-c', 'user.email=t@t', ...args], { cwd, env: { LEASEHOLD_AGENT: agent } }).finished
    for (const root of [main, tree]) {
      mkdirSync(join(root, 'src'), { recursive: true })
      writeFileSync(join(root, 'src/server.ts'), root)
      execFileSync('git', ['add', 'src/server.ts'], { cwd: root })
    }
    await edit('ann', main)
    expect(await commit('bob', tree, 'commit', '-m', 'x')).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/src\/server\.ts is held by ann[\s\S]*--no-verify/),
    })
    // ann's turn ends, bob writes and commits; then ann's older edit is refused.
    await edit('ann', main, 'claude-stop')
    await edit('bob', tree)
    expect((await commit('bob', tree, 'commit', '-m', 'x')).code).toBe(0)
    await edit('bob', tree, 'claude-stop')
    expect(await commit('ann', main, 'commit', '-m', 'y')).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/written under token \d+, and another agent has committed it/),
    })
    // A push of bob's commit, while ann holds the path again.
    git('init', '-q', '--bare', here.file('remote.git'))
    git('remote', 'add', 'mirror', here.file('remote.git'))
    await edit('ann', main)
    expect(await commit('bob', tree, 'push', 'mirror', 'HEAD:refs/heads/x')).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/src\/server\.ts is held by ann/),
    })
    await edit('ann', main, 'claude-stop')
    expect((await commit('bob', tree, 'push', 'mirror', 'HEAD:refs/heads/x')).code).toBe(0)
    // The user's own hook got its input.
    expect(readFileSync(join(tree, 'pushed-refs'), 'utf8')).toMatch(/refs\/heads\/x/)
    await init('--remove', '--yes')
    expect(readFileSync(there, 'utf8')).toBe('#!/bin/sh\ncat > pushed-refs\n')
    expect(existsSync(join(main, '.git', 'hooks', 'pre-commit'))).toBe(false)
  })
})
