/** One identity for MCP, hooks and git: a host, its shells, npx, the program, git and its hook scripts, as real processes. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { beforeAll, describe, expect, test } from 'vitest'
import { Place, program } from '../support/cli.ts'
import { requireFreshBuild } from '../support/fresh-build.ts'
import { rawEvent } from '../support/hook-events.ts'

beforeAll(() => requireFreshBuild())

const TIMEOUT = 240_000
const HOST = fileURLToPath(new URL('../support/agent-host.mjs', import.meta.url))

/** A coding agent: a process that starts its MCP server, its hooks and its shell as a host does. */
class Host implements AsyncDisposable {
  readonly #child: ChildProcess
  readonly #answers: AsyncIterator<string>

  constructor(here: Place, folder: string, env: Readonly<Record<string, string>> = {}) {
    this.#child = spawn(process.execPath, [HOST, folder], {
      stdio: ['pipe', 'pipe', 'inherit'],
      env: { ...here.env, ...env, PATH: `${join(folder, 'bin')}:${process.env.PATH}` } as NodeJS.ProcessEnv,
    })
    this.#answers = createInterface({ input: this.#child.stdout! })[Symbol.asyncIterator]()
  }

  get pid(): number {
    return this.#child.pid!
  }

  // biome-ignore lint/suspicious/noExplicitAny: answers of hooks and tools
  async #ask(question: object): Promise<any> {
    this.#child.stdin!.write(`${JSON.stringify(question)}\n`)
    const { value, done } = await this.#answers.next()
    if (done === true) throw new Error('the host has ended')
    return JSON.parse(value)
  }

  /** Starts the MCP server with this command line. */
  mcp(command: string) {
    return this.#ask({ mcp: command })
  }

  call(name: string, args: object = {}) {
    return this.#ask({ call: name, args })
  }

  /** Runs a hook command in a shell, with an event. Returns the reason of a denial, or undefined. */
  async hook(command: string, event: object): Promise<string | undefined> {
    const { stdout, stderr } = await this.#ask({ run: command, input: JSON.stringify(event) })
    if (stderr !== '') throw new Error(stderr)
    return stdout === '' ? undefined : JSON.parse(stdout).hookSpecificOutput?.permissionDecisionReason
  }

  run(command: string): Promise<{ readonly code: number; readonly stdout: string; readonly stderr: string }> {
    return this.#ask({ run: command, input: '' })
  }

  async kill(): Promise<void> {
    const exit = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await exit
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    this.#child.stdin!.end()
    await once(this.#child, 'exit')
  }
}

/** A repository, a server, and the program where a host finds it: on the PATH, and for npx. */
async function world() {
  const here = new Place()
  const folder = here.file('my app')
  mkdirSync(join(folder, 'node_modules/.bin'), { recursive: true })
  mkdirSync(join(folder, 'bin'))
  const guard = join(program, '../leasehold-guard.cjs')
  for (const [name, file] of [
    ['leasehold', program],
    ['leasehold-guard', guard],
  ] as const)
    for (const bin of ['bin', 'node_modules/.bin']) symlinkSync(file, join(folder, bin, name))
  const git = (...args: string[]) => execFileSync('git', args, { cwd: folder, encoding: 'utf8', stdio: 'pipe' })
  git('init', '-q')
  git('config', 'user.name', 't')
  git('config', 'user.email', 't@t')
  git('remote', 'add', 'origin', 'git@github.com:acme/app.git')
  writeFileSync(join(folder, '.gitignore'), 'node_modules\nbin\n')
  const server = here.start(['serve', '--listen', '127.0.0.1:0', '--store', `file:${here.file('served.db')}`])
  const [, address] = await server.printed(/(127\.0\.0\.1:\d+)/)
  const url = `http://${address}`
  const edit = (session: string, file: string, more: object = {}) => ({
    ...rawEvent('claude-pre-edit', folder),
    session_id: session,
    tool_input: { file_path: join(folder, file) },
    ...more,
  })
  const event = (name: string, session: string, more: object = {}) => ({ ...rawEvent(name, folder), session_id: session, ...more })
  return { here, folder, url, git, edit, event, guard: `leasehold-guard --store ${url} --host claude` }
}

describe('one host', () => {
  test(
    'is one agent for its MCP server by npx, its hooks and its commits, and another host is denied all of it',
    async () => {
      const { here, folder, url, edit, event, guard } = await world()
      await using _ = here
      await using host = new Host(here, folder)
      await using other = new Host(here, folder)
      expect((await host.run(`leasehold init git --yes --store ${url}`)).code).toBe(0)
      // The hook first, then the MCP server through npx.
      expect(await host.hook(guard, edit('s1', 'f.txt'))).toBeUndefined()
      await host.mcp(`npx --no-install leasehold mcp --store ${url}`)
      const name = `agent-${host.pid}`
      expect(await host.call('whoami')).toMatchObject({ agent: name })
      expect((await host.call('mine')).held).toMatchObject([{ names: ['f.txt'] }])
      expect(await host.call('claim', { names: ['f.txt', 'g.txt'], purpose: 'edit' })).toMatchObject({ status: 'held' })
      expect(await host.hook(guard, edit('s1', 'g.txt'))).toBeUndefined()
      // What it holds, it can commit; the other host can neither write nor commit it.
      expect(await other.hook(guard, edit('s2', 'f.txt'))).toMatch(`f.txt is held by ${name}`)
      writeFileSync(join(folder, 'f.txt'), '1')
      const refused = await other.run('git add f.txt && git commit -qm theirs')
      expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining(`f.txt is held by ${name}`) })
      expect(await host.run('git add f.txt && git commit -qm mine')).toMatchObject({ code: 0, stderr: '' })
      // The end of the turn frees the files.
      expect(await host.hook(guard, event('claude-stop', 's1'))).toBeUndefined()
      expect(await other.hook(guard, edit('s2', 'f.txt'))).toBeUndefined()
    },
    TIMEOUT,
  )

  test(
    'may have two conversations and sub-agents: they exclude each other, and a commit may contain what any of them holds',
    async () => {
      const { here, folder, url, edit, event, guard } = await world()
      await using _ = here
      await using host = new Host(here, folder)
      expect((await host.run(`leasehold init git --yes --store ${url}`)).code).toBe(0)
      expect(await host.hook(guard, edit('one', 'a.txt'))).toBeUndefined()
      expect(await host.hook(guard, edit('two', 'a.txt'))).toMatch('in another conversation of yours')
      expect(await host.hook(guard, edit('two', 'b.txt'))).toBeUndefined()
      expect(await host.hook(guard, edit('one', 'c.txt', { agent_id: 'sub-1' }))).toBeUndefined()
      expect(await host.hook(guard, edit('one', 'c.txt', { agent_id: 'sub-2' }))).toMatch(`held by agent-${host.pid}/sub-1`)
      expect(await host.hook(guard, edit('two', 'c.txt'))).toMatch(`held by agent-${host.pid}/sub-1`)
      // A sub-agent may write what its conversation holds, and not what another conversation does.
      expect(await host.hook(guard, edit('one', 'a.txt', { agent_id: 'sub-1' }))).toBeUndefined()
      expect(await host.hook(guard, edit('one', 'b.txt', { agent_id: 'sub-1' }))).toMatch('b.txt is held by')
      for (const file of ['a.txt', 'b.txt', 'c.txt']) writeFileSync(join(folder, file), '1')
      expect(await host.run('git add -A && git commit -qm all')).toMatchObject({ code: 0, stderr: '' })
      // The end of one turn ends the claims of that conversation.
      await host.hook(guard, event('claude-stop', 'one'))
      expect(await host.hook(guard, edit('two', 'a.txt'))).toBeUndefined()
      expect(await host.hook(guard, edit('one', 'b.txt'))).toMatch('in another conversation of yours')
    },
    TIMEOUT,
  )

  test(
    'keeps its port and what was claimed to last over the end of its turn, and loses everything when it is killed',
    async () => {
      const { here, folder, url, edit, event, guard } = await world()
      await using _ = here
      await using host = new Host(here, folder)
      await using other = new Host(here, folder)
      for (const one of [host, other]) await one.mcp(`leasehold mcp --store ${url}`)
      const taken = await host.call('take', { pool: 'port', range: '42100-42109' })
      const port = taken.members[0].member
      expect(taken.ends.join()).not.toMatch('turn')
      const file = await host.call('claim', { names: ['a.txt'], purpose: 'edit' })
      expect(file.ends[1]).toMatch('the end of your turn')
      const lasting = await host.call('claim', { names: ['b.txt'], until: 'release', purpose: 'a long rewrite' })
      expect(lasting.ends.join()).not.toMatch('turn')
      expect((await other.call('take', { pool: 'port', range: '42100-42109' })).members[0].member).not.toBe(port)
      await host.hook(guard, event('claude-stop', 's'))
      expect(((await host.call('mine')).held as { names: string[] }[]).flatMap(({ names }) => names).sort()).toEqual([
        'b.txt',
        `name:port/${port}`,
      ])
      expect((await host.call('take', { pool: 'port', range: '42100-42109' })).members).toMatchObject([{ member: port }])
      // A new conversation in the same process goes on with the port.
      await host.hook(guard, event('claude-session-end', 's', { reason: 'clear' }))
      expect((await host.call('take', { pool: 'port', range: '42100-42109' })).members).toMatchObject([{ member: port }])
      expect(await other.hook(guard, edit('t', 'b.txt'))).toMatch('b.txt is held by')
      await host.kill()
      expect(await other.call('claim', { names: [`name:port/${port}`, 'b.txt'], purpose: 'x', wait_seconds: 40 })).toMatchObject({
        status: 'held',
      })
    },
    TIMEOUT,
  )
})

test(
  'two hosts with one name are two agents, in tools, hooks and commits',
  async () => {
    const { here, folder, url, edit, guard } = await world()
    await using _ = here
    const named = { LEASEHOLD_AGENT: 'planner' }
    await using one = new Host(here, folder, named)
    await using two = new Host(here, folder, named)
    expect((await one.run(`leasehold init git --yes --store ${url}`)).code).toBe(0)
    expect(await one.hook(guard, edit('s', 'a.txt'))).toBeUndefined()
    expect(await two.hook(guard, edit('s', 'a.txt'))).toMatch('a.txt is held by planner,')
    expect(await two.hook(guard, edit('s', 'b.txt'))).toBeUndefined()
    await one.mcp(`npx --no-install leasehold mcp --store ${url}`)
    await two.mcp(`npx --no-install leasehold mcp --store ${url}`)
    expect([(await one.call('whoami')).agent, (await two.call('whoami')).agent]).toEqual(['planner', 'planner-2'])
    expect((await two.call('mine')).held).toMatchObject([{ names: ['b.txt'] }])
    for (const file of ['a.txt', 'b.txt']) writeFileSync(join(folder, file), '1')
    expect(await two.run('git add a.txt && git commit -qm x')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('held by planner:'),
    })
    expect(await two.run('git reset -q && git add b.txt && git commit -qm x')).toMatchObject({ code: 0 })
  },
  TIMEOUT,
)

test(
  'leasehold init sets up the agents that are here with one command, and takes all of it out again byte for byte',
  async () => {
    const { here, folder, url } = await world()
    await using _ = here
    await using host = new Host(here, folder)
    const theirs = {
      '.claude/settings.json': '{\n\t"model": "opus"\n}',
      '.gemini/settings.json': '{ "theme": "x" }\n',
      '.codex/config.toml': 'model = "o"',
      '.cursor/mcp.json': '{"mcpServers":{"x":{"command":"y"}}}',
    }
    for (const [file, text] of Object.entries(theirs)) {
      mkdirSync(join(folder, file, '..'), { recursive: true })
      writeFileSync(join(folder, file), text)
    }
    const shown = await host.run(`leasehold init --store ${url}`)
    expect(shown.stdout).toMatch(/^Here: claude, codex, cursor, gemini, git\.\n/)
    expect(shown.stdout).toContain('+ \t"model": "opus",\n')
    expect(readFileSync(join(folder, '.claude/settings.json'), 'utf8')).toBe(theirs['.claude/settings.json'])
    expect(await host.run(`leasehold init --yes --store ${url}`)).toMatchObject({ code: 0, stderr: '' })
    const mcp = JSON.parse(readFileSync(join(folder, '.mcp.json'), 'utf8')).mcpServers.leasehold
    expect(mcp).toEqual({ command: 'leasehold', args: ['mcp', '--store', url] })
    expect(readFileSync(join(folder, '.codex/config.toml'), 'utf8')).toMatch(
      /\[mcp_servers\.leasehold\]\ncommand = "leasehold"\nargs = \["mcp", "--store", "http/,
    )
    expect(JSON.parse(readFileSync(join(folder, '.gemini/settings.json'), 'utf8'))).toMatchObject({
      theme: 'x',
      hooks: { BeforeTool: [{ matcher: 'write_file|replace' }] },
      mcpServers: { leasehold: mcp },
    })
    expect(JSON.parse(readFileSync(join(folder, '.cursor/mcp.json'), 'utf8')).mcpServers).toEqual({ x: { command: 'y' }, leasehold: mcp })
    expect((await host.run(`leasehold init --yes --store ${url}`)).stdout).toContain('in place already')
    expect(await host.run(`leasehold init --remove --yes --store ${url}`)).toMatchObject({ code: 0, stderr: '' })
    for (const [file, text] of Object.entries(theirs)) expect(readFileSync(join(folder, file), 'utf8'), file).toBe(text)
    for (const file of ['.mcp.json', '.codex/hooks.json', '.cursor/hooks.json', '.git/hooks/pre-commit'])
      expect(existsSync(join(folder, file)), file).toBe(false)
  },
  TIMEOUT,
)
