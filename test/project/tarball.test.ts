/**
 * The package as users get it: packed, and installed into an empty folder. Every entry can be imported, compiled against and bundled, the program runs, and
 * nothing but SQLite is installed with it.
 */
import { execFile } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { downloading } from '../support/certificates.ts'
import { packageCheckers } from '../support/client-sets.ts'
import { describeWith, programs } from '../support/engine.ts'
import { orSkip } from '../support/foreign-clients.ts'
import { otherNode } from '../support/kernel/other-node.ts'
import { packed } from '../support/packed.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const run = promisify(execFile)
const TIMEOUT = 240_000
/** Without the settings of the npm that runs the tests: they name the folder of the repository. */
const env = Object.fromEntries(Object.entries(downloading()).filter(([name]) => !/^(npm_|LEASEHOLD_)/i.test(name)))
/** Of docs/library.md: what a new user types. */
const FIRST_LEASE = `import { connect } from 'leasehold'
const leases = await connect('file:leases.db')
await leases.request('jobs/nightly', lease => console.log('held', lease.token > 0))
await leases.close()
`

const folder = mkdtempSync(join(tmpdir(), 'leasehold-tarball-'))
const installed = join(folder, 'node_modules/leasehold')
const npm = (...args: readonly string[]) => run('npm', [...args], { cwd: folder, env, timeout: TIMEOUT })
const node = (...args: readonly string[]) => run(process.execPath, [...args], { cwd: folder, env, timeout: TIMEOUT })
let tarball = ''
let unpackedSize = 0
let entries: string[] = []

beforeAll(async () => {
  const made = await packed()
  tarball = made.tarball
  unpackedSize = made.unpackedSize
  writeFileSync(join(folder, 'package.json'), '{"private":true,"type":"module"}')
  await npm('install', '--no-audit', '--no-fund', '--prefer-offline', tarball)
  writeFileSync(join(folder, 'first.js'), FIRST_LEASE)
  const { exports } = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8')) as { exports: Record<string, unknown> }
  const names: Readonly<Record<string, readonly string[]>> = {
    './store/*': ['file', 'postgres', 'redis', 'etcd'],
    './recipe/*': ['lock', 'election', 'session', 'cache', 'pool', 'slots'],
  }
  entries = Object.keys(exports)
    .filter(entry => entry !== './package.json')
    .flatMap(entry => (entry.includes('*') ? names[entry]!.map(name => entry.replace('*', name)) : [entry]))
    .map(entry => join('leasehold', entry))
}, TIMEOUT)

afterAll(() => rmSync(folder, { recursive: true, force: true }))

test('a user installs the package, SQLite and what SQLite needs, and nothing else', () => {
  const installedPackages = Object.keys(
    (JSON.parse(readFileSync(join(folder, 'node_modules/.package-lock.json'), 'utf8')) as { packages: object }).packages,
  )
  expect(installedPackages.sort()).toEqual([
    'node_modules/@photostructure/sqlite',
    'node_modules/leasehold',
    'node_modules/node-addon-api',
    'node_modules/node-gyp-build',
  ])
})

test('it takes at most 8 MB without the optional SQLite package, in blocks of 4 KiB as well', () => {
  const sizes = readdirSync(installed, { recursive: true, withFileTypes: true })
    .filter(file => file.isFile())
    .map(file => statSync(join(file.parentPath, file.name)).size)
  const total = sizes.reduce((sum, size) => sum + size, 0)
  expect(total).toBe(unpackedSize)
  expect(total).toBeLessThan(7_000_000)
  expect(sizes.reduce((sum, size) => sum + Math.ceil(size / 4_096) * 4_096, 0)).toBeLessThan(8_000_000)
})

test('the first lease takes fewer than ten lines', async () => {
  expect(FIRST_LEASE.trim().split('\n').length).toBeLessThan(10)
  expect((await node('first.js')).stdout).toBe('held true\n')
})

test('every entry can be imported, except leasehold/otel without OpenTelemetry', async () => {
  const program = `for (const entry of ${JSON.stringify(entries)})
    console.log(entry, await import(entry).then(found => Object.keys(found).length > 0, error => error.code))`
  const { stdout } = await node('--input-type=module', '-e', program)
  const results = stdout.trim().split('\n')
  expect(results.filter(line => !line.endsWith(' true'))).toEqual(['leasehold/otel ERR_MODULE_NOT_FOUND'])
  expect(results).toHaveLength(entries.length)
})

test('entries share their classes: an error of a store is an instance of the LeaseError of leasehold and of leasehold/http', async () => {
  const program = `const all = await Promise.all(['leasehold', 'leasehold/http', 'leasehold/store'].map(name => import(name)))
    console.log(new Set(all.map(({ LeaseError }) => LeaseError)).size)`
  expect((await node('--input-type=module', '-e', program)).stdout).toBe('1\n')
})

test('leasehold/http loads no module of Node, so browsers can load it', () => {
  const { exports } = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'))
  const loaded = new Set<string>()
  const open = [join(installed, exports['./http'].default)]
  for (let file = open.pop(); file !== undefined; file = open.pop()) {
    if (loaded.has(file)) continue
    loaded.add(file)
    for (const [, name] of readFileSync(file, 'utf8').matchAll(/^\s*(?:import|export)\b[^'"`;]*?['"]([^'"\n]+)['"]/gm))
      open.push(name!.startsWith('.') ? join(dirname(file), name!) : name!)
  }
  expect([...loaded].filter(file => !file.startsWith(installed))).toEqual([])
})

test('the program runs a command, and serves pages, metrics and its description', async () => {
  const program = join(folder, 'node_modules/.bin/leasehold')
  expect((await run(program, ['run', '--store', 'file:run.db', 'job', '--', 'echo', 'ran'], { cwd: folder, env })).stdout).toBe('ran\n')
  const server = execFile(program, ['serve', '--store', 'memory:', '--listen', '127.0.0.1:0', '--json'], { cwd: folder, env })
  try {
    const page = await new Promise<string>((resolve, reject) => {
      server.stdout!.once('data', line => resolve((JSON.parse(String(line)) as { page: string }).page))
      server.once('exit', code => reject(new Error(`the server ended with ${code}`)))
    })
    const texts = await Promise.all(['', 'metrics', 'openapi.json'].map(async path => (await fetch(page + path)).text()))
    expect(texts[0]).toContain('<!doctype html>')
    expect(texts[1]).toContain('leasehold_build_info')
    expect(JSON.parse(texts[2]!)).toMatchObject({ openapi: '3.1.0' })
  } finally {
    server.kill('SIGKILL')
  }
})

test('the program contains the licences of the packages in it', () => {
  const licences = readFileSync(join(installed, 'dist/cli/bundle/LICENSES.txt'), 'utf8')
  for (const name of ['commander', 'pino', 'prom-client', 'typebox'])
    expect(licences).toMatch(new RegExp(`^${name} \\d+\\.\\d+\\.\\d+ \\(`, 'm'))
})

test('commands, workers and the page need no file that was left out', () => {
  const loadable = readdirSync(join(installed, 'dist'), { recursive: true, encoding: 'utf8' })
  expect(loadable.filter(path => /^(server|face|mcp|guard|demo)\//.test(path))).toEqual([])
  for (const path of ['library/connect/heartbeat-worker.js', 'library/cli/certify/writer.js', 'dashboard/page.js'])
    expect(existsSync(join(installed, 'dist', path)), path).toBe(true)
})

describeWith([programs['systemd-analyze']], 'the steps of docs/deploy.md', () => {
  test('install the program and the units of the tarball where systemd finds them', async () => {
    const machine = join(folder, 'machine')
    mkdirSync(join(machine, 'etc/systemd/system'), { recursive: true })
    cpSync('/usr/lib/systemd/system', join(machine, 'usr/lib/systemd/system'), { recursive: true, verbatimSymlinks: true })
    mkdirSync(join(machine, 'bin'))
    cpSync('/bin/kill', join(machine, 'bin/kill'))
    const page = readFileSync(join(root, 'docs/deploy.md'), 'utf8')
    const steps = [...page.matchAll(/^(?:npm install --global|cp) .*$/gm)].map(([step]) => step)
    expect(steps).toHaveLength(2)
    for (const step of steps) {
      const moved = step.replace(/\.\/leasehold-[\d.]+\.tgz/, tarball).replace(/(?<= )\/(usr|etc)\//g, path => machine + path)
      await run('/bin/sh', ['-ec', moved], { cwd: folder, env: { ...env, npm_config_prefer_offline: 'true' }, timeout: TIMEOUT })
    }
    const units = ['leasehold.service', 'leasehold-run@nightly.service', 'leasehold-run@nightly.timer']
    const verify = () => run('systemd-analyze', [`--root=${machine}`, 'verify', '--man=no', ...units], { env })
    expect(await verify()).toEqual({ stdout: '', stderr: '' })
    rmSync(join(machine, 'usr/local/bin/leasehold'))
    await expect(verify()).rejects.toMatchObject({
      stderr: expect.stringContaining('leasehold.service: Command leasehold is not executable'),
    })
  })
})

describe('strict TypeScript, without skipLibCheck', () => {
  const tsc = createRequire(import.meta.url)
    .resolve('typescript/package.json')
    .replace('package.json', 'bin/tsc')
  const compile = async (names: readonly string[], ...args: readonly string[]) => {
    writeFileSync(
      join(folder, 'all.ts'),
      `${names.map((name, i) => `import * as e${i} from '${name}'`).join('\n')}\nexport const all = [${names.map((_, i) => `e${i}`)}]\n`,
    )
    const strict = [
      '--noEmit',
      '--ignoreConfig',
      '--strict',
      '--exactOptionalPropertyTypes',
      '--noUncheckedIndexedAccess',
      '--target',
      'es2022',
    ]
    return node(tsc, ...strict, ...args, 'all.ts').then(
      () => '',
      ({ stdout }: { stdout: string }) => stdout,
    )
  }
  const withNode = ['--lib', 'es2022', '--types', 'node', '--typeRoots', join(root, 'node_modules/@types')]
  const withoutOtel = () => entries.filter(entry => entry !== 'leasehold/otel')

  test.each([
    ['node16', 'node16'],
    ['nodenext', 'nodenext'],
    ['esnext', 'bundler'],
  ])('compiles every entry with module %s and moduleResolution %s', async (module, resolution) => {
    expect(await compile(withoutOtel(), '--module', module, '--moduleResolution', resolution, ...withNode)).toBe('')
  })

  test('compiles what runs in every bundler without the types of Node, and without esnext.disposable in lib', async () => {
    const bundled = ['leasehold', 'leasehold/testing', 'leasehold/recipe/lock', 'leasehold/recipe/election', 'leasehold/store']
    const options = ['--module', 'esnext', '--moduleResolution', 'bundler', '--lib', 'es2022,dom', '--types', '']
    for (const names of [['leasehold/http'], bundled]) expect(await compile(names, ...options)).toBe('')
  })

  test('finds a wrong type', async () => {
    writeFileSync(join(folder, 'wrong.ts'), `import { connect } from 'leasehold'\nawait connect(7)\n`)
    await expect(node(tsc, '--noEmit', '--ignoreConfig', '--strict', '--module', 'node16', ...withNode, 'wrong.ts')).rejects.toMatchObject({
      stdout: expect.stringContaining("Argument of type '7' is not assignable"),
    })
  })
})

test('publint and arethetypeswrong find nothing wrong with it, for ESM', async context => {
  const tools = await orSkip('publint and arethetypeswrong', packageCheckers(), context)
  const bin = join(tools.resolve.paths('publint')![0]!, '.bin')
  const published = await run(join(bin, 'publint'), ['run', tarball, '--strict'], { timeout: TIMEOUT })
  expect(published.stdout).toContain('All good!')
  await run(join(bin, 'attw'), [tarball, '--profile', 'esm-only'], { timeout: TIMEOUT }) // its exit code is its result
})

describe.each([22, 24])('Node %i', major => {
  test('needs no SQLite but its own, and prints no warning', async context => {
    const other = await orSkip(`Node ${major}`, otherNode(major), context)
    rmSync(join(folder, 'node_modules/@photostructure'), { recursive: true, force: true }) // as npm install --omit=optional
    for (const name of readdirSync(folder)) if (name.startsWith('leases.db')) rmSync(join(folder, name), { recursive: true })
    expect(await run(other, ['first.js'], { cwd: folder, env })).toMatchObject({ stdout: 'held true\n', stderr: '' })
    const program = join(installed, 'dist/cli/leasehold.js')
    const ran = await run(other, [program, 'run', '--store', `file:${major}.db`, 'job', '--', 'echo', 'ran'], { cwd: folder, env })
    expect(ran).toMatchObject({ stdout: 'ran\n', stderr: '' })
  })
})
