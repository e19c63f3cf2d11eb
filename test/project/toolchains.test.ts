/**
 * The packed package in the toolchains of users: bundlers, runners of TypeScript, test runners, other runtimes. Each runs the same program, which takes a lease in
 * memory and one in a file, and ends. What a bundler made runs in a folder without the package, but below one where SQLite is installed.
 */
import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { toolchains } from '../support/client-sets.ts'
import { orSkip } from '../support/foreign-clients.ts'
import { packed } from '../support/packed.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const TIMEOUT = 240_000
const run = promisify(execFile)
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(npm_|LEASEHOLD_|VITEST|NODE_ENV)/i.test(name)))
const folder = mkdtempSync(join(tmpdir(), 'leasehold-toolchains-'))

const PRINTED = 'memory true\nfile true\nclosed\n'
const PROGRAM = `import { connect } from 'leasehold'
async function main() {
  for (const url of ['memory:', 'file:' + process.argv[2]]) {
    const leases = await connect(url)
    await leases.request('jobs/nightly', lease => console.log(url.split(':')[0], lease.held))
    await leases.close()
  }
  console.log('closed')
}
main()
`
/** Reads `held` until the machine's uptime, which some runtimes tell in whole seconds, has changed twice. */
const HOLDING = `import { connect } from 'leasehold'
import { uptime } from 'node:os'
const leases = await connect('memory:')
await leases.request('jobs/nightly', async lease => {
  let doubts = 0
  const since = Math.floor(uptime())
  while (uptime() < since + 2) {
    if (!lease.held) doubts++
    await new Promise(resolve => setTimeout(resolve, 5))
  }
  console.log(doubts)
})
await leases.close()
`
/** For test runners, under fake timers. */
const TESTS = `import { connect } from 'leasehold'
import { silentLessor } from 'leasehold/testing'
test.each(['memory:', 'file:' + import.meta.dirname + '/leases.db'])('%s', async url => {
  const leases = await connect(url)
  await leases.request('jobs/nightly', lease => expect(lease.held).toBe(true))
  await leases.close()
})
test('the test kit', async () => {
  const { clock, leases, lessor } = silentLessor()
  const lease = await leases.acquire('jobs/nightly', { ttl: '10s' })
  lessor.stopAnswering()
  await clock.advance(10_000)
  expect(lease.held).toBe(false)
})
`
let tools: Promise<NodeJS.Require>

beforeAll(async () => {
  tools = toolchains()
  tools.catch(() => {}) // each test that needs them says so
  const { tarball } = await packed()
  mkdirSync(join(folder, 'src/node_modules/leasehold'), { recursive: true })
  await run('tar', ['-xzf', tarball, '-C', 'src/node_modules/leasehold', '--strip-components=1'], { cwd: folder })
  // As npm would install it: SQLite, and what it needs.
  mkdirSync(join(folder, 'node_modules'))
  for (const name of ['@photostructure', 'node-addon-api', 'node-gyp-build'])
    symlinkSync(join(root, 'node_modules', name), join(folder, 'node_modules', name))
  writeFileSync(join(folder, 'package.json'), '{"private":true,"type":"module"}')
  for (const name of ['first.mjs', 'first.ts']) writeFileSync(join(folder, 'src', name), PROGRAM)
  writeFileSync(join(folder, 'src/holding.mjs'), HOLDING)
  writeFileSync(
    join(folder, 'src/required.cjs'),
    PROGRAM.replace("import { connect } from 'leasehold'", "const { connect } = require('leasehold')"),
  )
  for (const runner of ['jest', 'vitest']) {
    mkdirSync(join(folder, 'src', runner))
    writeFileSync(join(folder, 'src', runner, 'lease.test.js'), TESTS)
  }
}, TIMEOUT)

afterAll(() => rmSync(folder, { recursive: true, force: true }))

interface Skippable {
  skip(why: string): never
}

/** The path of a file in the installed tools. */
async function tool(path: string, context: Skippable): Promise<string> {
  const { resolve } = await orSkip('toolchains', tools, context)
  return join(resolve.paths('esbuild')![0]!, path)
}

/** Runs the program with a database of its own; returns what it printed. */
async function printedBy(...[program, ...args]: readonly [string, ...string[]]): Promise<string> {
  const database = join(mkdtempSync(join(folder, 'place-')), 'leases.db')
  return (await run(program, [...args, database], { cwd: folder, env, timeout: TIMEOUT })).stdout
}

const node = (...args: readonly string[]) => run(process.execPath, [...args], { cwd: folder, env, timeout: TIMEOUT })

test('require loads the package', async () => {
  expect(await printedBy(process.execPath, 'src/required.cjs')).toBe(PRINTED)
})

test.for([
  ['esm', 'mjs'],
  ['cjs', 'cjs'],
] as const)('a bundle of esbuild as %s needs no file of the package', async ([format, extension], context) => {
  const bundle = join(folder, 'out', `esbuild.${extension}`)
  const args = ['src/first.mjs', '--bundle', '--platform=node', `--format=${format}`, `--outfile=${bundle}`, '--log-level=error']
  await node(await tool('esbuild/bin/esbuild', context), ...args)
  expect(await printedBy(process.execPath, bundle)).toBe(PRINTED)
})

test('a bundle of Vite needs no file of the package', async () => {
  const output = { entryFileNames: 'first.mjs' }
  const config = { ssr: { noExternal: true }, build: { ssr: 'src/first.mjs', outDir: 'out/vite', rollupOptions: { output } } }
  writeFileSync(join(folder, 'vite.config.mjs'), `export default ${JSON.stringify(config)}`)
  await node(join(root, 'node_modules/vite/bin/vite.js'), 'build', '--logLevel', 'warn')
  expect(await printedBy(process.execPath, join(folder, 'out/vite/first.mjs'))).toBe(PRINTED)
})

test('a bundle of webpack needs no file of the package', async context => {
  const config = {
    ...{ mode: 'development', devtool: false, target: 'node20', entry: './src/first.mjs', experiments: { outputModule: true } },
    output: { path: join(folder, 'out/webpack'), filename: 'first.mjs', library: { type: 'module' } },
  }
  const program = `require(process.argv[1])(${JSON.stringify(config)}, (error, stats) => {
    const { errors } = stats?.toJson({ all: false, errors: true }) ?? { errors: [error] }
    if (errors.length > 0) throw new Error(JSON.stringify(errors, null, 1))
  })`
  await node('--input-type=commonjs', '-e', program, await tool('webpack', context))
  expect(await printedBy(process.execPath, join(folder, 'out/webpack/first.mjs'))).toBe(PRINTED)
})

test.for([
  ['tsx', ['node', 'tsx/dist/cli.mjs'], 'src/first.ts'],
  ['Bun', ['@oven', 'bin/bun'], 'src/first.ts'],
  ['Deno', ['@deno', 'deno'], 'src/first.mjs'],
] as const)('%s runs the program', async ([name, [scope, path], program], context) => {
  if (name === 'tsx') return expect(await printedBy(process.execPath, await tool(path, context), program)).toBe(PRINTED)
  const packages = await tool(scope, context)
  const binary = join(packages, readdirSync(packages)[0]!, path)
  expect(await printedBy(binary, ...(name === 'Deno' ? ['run', '-A'] : []), program)).toBe(PRINTED)
})

test.for([
  ['Bun', ['@oven', 'bin/bun']],
  ['Deno', ['@deno', 'deno']],
] as const)(
  'in %s a lease is held without interruption, although the uptime is told in whole seconds',
  async ([name, [scope, path]], context) => {
    const packages = await tool(scope, context)
    const binary = join(packages, readdirSync(packages)[0]!, path)
    expect(await printedBy(binary, ...(name === 'Deno' ? ['run', '-A'] : []), 'src/holding.mjs')).toBe('0\n')
  },
)

test('Vitest runs tests under fake timers', async () => {
  const setup = join(folder, 'fake.js')
  writeFileSync(setup, "import { beforeEach, vi } from 'vitest'\nbeforeEach(() => void vi.useFakeTimers())\n")
  const config = { test: { globals: true, dir: 'src/vitest', setupFiles: [setup] } }
  writeFileSync(join(folder, 'vitest.config.mjs'), `export default ${JSON.stringify(config)}`)
  symlinkSync(join(root, 'node_modules/vitest'), join(folder, 'node_modules/vitest'))
  const { stdout } = await node(join(root, 'node_modules/vitest/vitest.mjs'), 'run', '--reporter=json')
  expect(JSON.parse(stdout.slice(stdout.indexOf('{')))).toMatchObject({ numPassedTests: 3, success: true })
})

describe('Jest', () => {
  const jest = async (context: Skippable, modules: string) =>
    run(
      process.execPath,
      [...(modules === '' ? [] : [modules]), await tool('jest/bin/jest.js', context), '--rootDir', 'src/jest', '--config', CONFIG],
      {
        ...{ cwd: folder, env, timeout: TIMEOUT },
      },
    ).then(
      ({ stderr }) => stderr,
      ({ stderr }: { stderr: string }) => stderr,
    )
  const CONFIG = JSON.stringify({ transform: {}, fakeTimers: { enableGlobally: true } })

  test('runs tests as ES modules under fake timers', async context => {
    expect(await jest(context, '--experimental-vm-modules')).toMatch(/Tests: +3 passed, 3 total/)
  })

  test('says what to do if it runs CommonJS and cannot load ES modules', async context => {
    expect(await jest(context, '')).toMatch(/ES [Mm]odule|import statement outside a module|Tests: +3 passed/)
  })
})
