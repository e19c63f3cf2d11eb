/** `leasehold mcp` as hosts start it: the built program, and the official clients of both revisions. */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { Place, program } from '../support/cli.ts'
import { CLIENTS, type ClientKind, McpClient } from '../support/mcp.ts'

const TIMEOUT = 120_000

/** A repository with an origin, and agents that work in it. */
class Repository implements AsyncDisposable {
  readonly place = new Place()
  readonly folder: string
  readonly #clients: McpClient[] = []

  constructor() {
    this.folder = this.place.file('app')
    mkdirSync(this.folder)
    const git = (...args: string[]) => spawnSync('git', args, { cwd: this.folder })
    git('init', '-q')
    git('remote', 'add', 'origin', 'git@github.com:acme/app.git')
  }

  async agent(kind: ClientKind, name: string, ...options: readonly string[]): Promise<McpClient> {
    const args = [program, 'mcp', '--store', this.place.url, '--agent', name, ...options]
    const client = await McpClient.stdio(kind, { args, cwd: this.folder, env: { XDG_STATE_HOME: this.place.path } })
    this.#clients.push(client)
    return client
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.allSettled(this.#clients.map(client => client.close()))
    await this.place[Symbol.asyncDispose]()
  }
}

describe.each(CLIENTS)('the client %s', kind => {
  test('lists the tools with schemas and annotations, and none that renews', async () => {
    await using repository = new Repository()
    const { tools } = await repository.agent(kind, 'planner')
    expect(tools.map(({ name }) => name).sort()).toEqual(['ask', 'claim', 'look', 'mine', 'release', 'take', 'whoami'])
    for (const { name, description, inputSchema, outputSchema, annotations } of tools) {
      expect(description?.length, name).toBeGreaterThan(40)
      expect(inputSchema, name).toMatchObject({ type: 'object' })
      expect(outputSchema, name).toMatchObject({ type: 'object', required: expect.arrayContaining(['status', 'notices']) })
      expect(annotations, name).toMatchObject({
        readOnlyHint: ['look', 'mine', 'whoami'].includes(name),
        destructiveHint: name === 'release',
      })
    }
  })

  test('calls each tool, and every result matches its schema', async () => {
    await using repository = new Repository()
    const [one, two] = await Promise.all([repository.agent(kind, 'one'), repository.agent(kind, 'two')])
    expect(await one.call('whoami')).toMatchObject({
      agent: 'one',
      alive_by: 'process',
      ttl_seconds: 60,
      prefix: 'repo/github.com/acme/app',
    })
    const held = await one.call('claim', {
      names: ['src/a.ts', './src/../src/b.ts', 'name:port/3000'],
      purpose: 'add a route',
      expect_minutes: 5,
    })
    expect(held).toMatchObject({ status: 'held', names: ['src/a.ts', 'src/b.ts', 'name:port/3000'] })
    const queued = await two.call('claim', { names: ['src/a.ts'], purpose: 'write tests', wait_seconds: 0.5 })
    expect(queued).toMatchObject({
      status: 'queued',
      position: 0,
      waits_for: [{ name: 'src/a.ts', holders: [{ holder: 'one', purpose: 'add a route' }] }],
    })
    expect(queued.estimate_seconds).toBeGreaterThan(250)
    expect(await two.call('look', { name: 'src' })).toMatchObject({
      names: [{ name: 'src/a.ts', waiters: [{ holder: 'two' }] }, { name: 'src/b.ts' }],
    })
    expect(await two.call('ask', { name: 'src/a.ts', message: 'the build is red' })).toMatchObject({ status: 'asked', holders: ['one'] })
    const mine = await one.call('mine')
    expect(mine.held).toHaveLength(1)
    expect(mine.notices.map(({ kind: what, by }) => [what, by])).toEqual([
      ['asked', 'two'],
      ['wanted', 'two'],
    ])
    expect(await one.call('release', { names: ['src/a.ts', 'nothing'] })).toMatchObject({ released: ['src/a.ts'], not_held: ['nothing'] })
    expect(await two.call('claim', { names: ['src/a.ts'], purpose: 'write tests', wait_seconds: 20 })).toMatchObject({ status: 'held' })
    expect(await two.call('take', { pool: 'gpu' })).toMatchObject({ status: 'refused', error: { code: 'NOT_FOUND' } })
    expect(await two.call('claim', { names: ['../../etc/passwd'], purpose: 'x' })).toMatchObject({
      status: 'refused',
      error: { code: 'INVALID' },
    })
    expect(await two.call('claim', { purpose: 'x' })).toMatchObject({ status: 'refused', error: { code: 'INVALID' } })
  })
})

describe('the end of an agent', () => {
  test('frees its claims at once when the input ends', async () => {
    await using repository = new Repository()
    const one = await repository.agent('1.x', 'one')
    const two = await repository.agent('1.x', 'two')
    await one.call('claim', { names: ['a'], purpose: 'x' })
    await two.call('claim', { names: ['a'], purpose: 'y' })
    await one.close()
    expect(await two.call('claim', { names: ['a'], purpose: 'y', wait_seconds: 30 })).toMatchObject({ status: 'held' })
  })

  test('frees its claims when TERM ends its server', async () => {
    await using repository = new Repository()
    const one = await repository.agent('1.x', 'one')
    const two = await repository.agent('1.x', 'two')
    await one.call('claim', { names: ['a'], purpose: 'x' })
    process.kill(one.pid!, 'SIGTERM')
    expect(await two.call('claim', { names: ['a'], purpose: 'y', wait_seconds: 30 })).toMatchObject({ status: 'held' })
  })

  test('frees its claims when the bound process is gone, although its server still runs', async () => {
    await using repository = new Repository()
    const bound = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' })
    const one = await repository.agent('1.x', 'one', '--bind-pid', `${bound.pid}`)
    const two = await repository.agent('1.x', 'two')
    await one.call('claim', { names: ['a'], purpose: 'x' })
    await two.call('claim', { names: ['a'], purpose: 'y' })
    const exited = once(bound, 'exit')
    bound.kill('SIGKILL')
    await exited
    expect(await two.call('claim', { names: ['a'], purpose: 'y', wait_seconds: 30 })).toMatchObject({ status: 'held' })
  })
})

describe('leasehold mcp', () => {
  test('finds the same claims in two worktrees of one repository', async () => {
    await using repository = new Repository()
    const one = await repository.agent('1.x', 'one')
    await one.call('claim', { names: [`${repository.folder}/src/a.ts`], purpose: 'x' })
    const shown = await repository.place.json('ls', 'repo', '--store', repository.place.url)
    expect(shown.map(({ resource }) => resource)).toEqual(['repo/github.com/acme/app/src/a.ts'])
  })

  test(
    'refuses a name that is none, and a process that does not exist, before it opens anything',
    async () => {
      const place = new Place()
      await using _ = place
      expect(await place.run(['mcp', '--agent', '../x'])).toMatchObject({ code: 64, stdout: '' })
      expect(await place.run(['mcp', '--bind-pid', '999999999'])).toMatchObject({ code: 64, stdout: '' })
    },
    TIMEOUT,
  )

  test('answers UNAVAILABLE with the next step while its server is away, and works when it is back', async () => {
    const place = new Place()
    await using _ = place
    const first = place.start(['serve', '--listen', '127.0.0.1:0'])
    const [, port] = await first.printed(/127\.0\.0\.1:(\d+)/)
    const args = [program, 'mcp', '--store', `leasehold://127.0.0.1:${port}`, '--agent', 'one', '--no-workspace']
    await using one = await McpClient.stdio('1.x', { args, cwd: place.path, env: { XDG_STATE_HOME: place.path } })
    expect(await one.call('claim', { names: ['a'], purpose: 'x' })).toMatchObject({ status: 'held' })
    first.process.kill('SIGKILL')
    await first.finished
    const away = await one.call('mine')
    expect(away).toMatchObject({ status: 'refused', error: { code: 'UNAVAILABLE' } })
    const second = place.start(['serve', '--listen', `127.0.0.1:${port}`])
    await second.printed(/127\.0\.0\.1:\d+/)
    for (;;) {
      const mine = await one.call('mine')
      if (mine.status !== 'ok') continue
      expect(mine.held).toMatchObject([{ names: ['a'] }])
      break
    }
  })
})
