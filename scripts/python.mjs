// Checks the Python client: its tests on Python 3.10 and on the newest Python of this machine, the conformance suite on both clients, known mistakes
// planted in copies of the client, ruff, mypy, and the packages that would be published. `npm test` runs it; `node scripts/python.mjs TEXT` runs the checks
// whose name contains TEXT.
//
// Tools have pinned versions and are installed into a cache folder, ~/.cache/leasehold or LEASEHOLD_CACHE. Without a Python, or without its tools, the
// checks are skipped with a warning; with CI=true that is a failure. The last line is `N passed, N failed`.

import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { root } from './build.mjs'

/** The oldest Python that the client supports. */
const OLDEST = '3.10'
const client = join(root, 'clients/python')
const PYTHON_SOURCES = ['.', '../../conformance', '../../bench/python.py']
const cache = process.env.LEASEHOLD_CACHE ?? join(homedir(), '.cache/leasehold')
const server = `"${process.execPath}" "${join(root, 'dist/cli/leasehold.js')}"`
const conformance = [process.execPath, join(root, '.sim/conformance/run.js')]
/** In seconds. They only end what hangs: several times what each command takes on two idle cores, since a busy machine must pass as well. */
const INSTALL_LIMIT = 600
const COMMAND_LIMIT = 1_000

const total = { passed: 0, failed: 0, skipped: 0 }
const scratch = mkdtempSync(join(tmpdir(), 'leasehold-python-'))

/** The newest patch of each minor version that is installed here, by version. */
export function interpreters() {
  const names = Array.from({ length: 15 }, (_, i) => `python3.${10 + i}`)
  const pyenv = join(process.env.PYENV_ROOT ?? join(homedir(), '.pyenv'), 'versions')
  const versions = existsSync(pyenv) ? readdirSync(pyenv).map(version => join(pyenv, version, 'bin/python3')) : []
  const found = new Map()
  for (const program of ['python3', ...names, ...versions]) {
    const { status, stdout } = spawnSync(program, ['-c', 'import sys, venv; print("%d.%d" % sys.version_info[:2], sys.executable)'], {
      encoding: 'utf8',
      timeout: 30_000,
    })
    const [, version, executable] = (status === 0 && /^(3\.\d+) (.+)$/m.exec(stdout)) || []
    if (version !== undefined && minor(version) >= minor(OLDEST)) found.set(version, executable)
  }
  return new Map([...found].sort(([a], [b]) => minor(a) - minor(b)))
}

function minor(version) {
  return Number(version.split('.')[1])
}

/** A virtual environment with the packages of a requirements file. Returns its Python, or undefined if the packages cannot be installed. */
export async function environment(version, python, requirements) {
  const lists = readdirSync(client).filter(name => /^requirements.*\.txt$/.test(name))
  const hash = createHash('sha256')
  for (const name of [...lists.sort()]) hash.update(readFileSync(join(client, name)))
  const folder = join(cache, `python-${version}-${basename(requirements, '.txt')}-${hash.digest('hex').slice(0, 12)}`)
  const program = join(folder, 'bin/python')
  if (existsSync(program)) return program
  console.log(`installing ${requirements} for Python ${version} into ${folder}`)
  mkdirSync(cache, { recursive: true })
  // Another run may install the same: the first one to finish wins, and neither sees a half of it.
  const unfinished = mkdtempSync(`${folder}-`)
  const made = await run([python, '-m', 'venv', unfinished], { limit: INSTALL_LIMIT })
  const pip = [join(unfinished, 'bin/python'), '-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--no-deps']
  const installed = made.code === 0 && (await run([...pip, '-r', join(client, requirements)], { limit: INSTALL_LIMIT })).code === 0
  if (!installed) {
    rmSync(unfinished, { recursive: true, force: true })
    return undefined
  }
  try {
    renameSync(unfinished, folder)
  } catch {
    rmSync(unfinished, { recursive: true, force: true })
  }
  return existsSync(program) ? program : undefined
}

/** The environments of the oldest and the newest Python of this machine: one to run the tests with, and for the newest one with the tools. */
export async function environments(found = interpreters()) {
  const newest = [...found.keys()].at(-1)
  const prepared = new Map()
  for (const version of new Set([OLDEST, newest])) {
    if (!found.has(version)) continue
    const python = await environment(version, found.get(version), 'requirements-test.txt')
    const tools = version === newest ? await environment(version, found.get(version), 'requirements-tools.txt') : undefined
    prepared.set(version, { python, tools, missing: python === undefined || (version === newest && tools === undefined) })
  }
  return prepared
}

/** Runs a command to its end, in its own process group. */
function run([program, ...args], { cwd = root, env = {}, limit = COMMAND_LIMIT } = {}) {
  return new Promise(resolve => {
    const child = spawn(program, args, { cwd, env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1', ...env }, detached: true })
    let output = ''
    const read = chunk => (output += chunk)
    child.stdout.on('data', read)
    child.stderr.on('data', read)
    const timer = setTimeout(() => {
      read(`\n${program} ${args.join(' ')}: not finished after ${limit} s, ended\n`)
      endGroup(child.pid)
    }, limit * 1_000)
    child.on('error', error => read(`${error}\n`))
    child.on('close', code => {
      clearTimeout(timer)
      endGroup(child.pid)
      resolve({ code: code ?? 1, output })
    })
    running.add(child.pid)
  })
}

const running = new Set()

function endGroup(pid) {
  running.delete(pid)
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // The group is empty.
  }
}

/** A check that runs no command. */
function report(name, passed, shown) {
  total[passed ? 'passed' : 'failed']++
  console.log(`\n-- ${name}: ${passed ? 'passed' : `FAILED\n${shown}`}`)
}

/** Runs a check. It passes as often as `count` finds in its output, or once. The output is shown at its end: checks run beside each other. */
async function check(name, command, { count = once, ...options } = {}) {
  const began = performance.now()
  const ended = await run(command, options)
  const { passed, failed, skipped } = count(ended)
  // A check that counted its successes and then died has not passed.
  total.failed += ended.code !== 0 && failed === 0 ? 1 : failed
  total.passed += passed
  total.skipped += skipped
  // Only the last line of all may look like a closing line.
  const shown = ended.output.trimEnd().replace(/^(\d+ passed, \d+ failed)/gm, '- $1')
  const verdict = ended.code === 0 ? 'passed' : 'FAILED'
  console.log(`\n-- ${name}\n${shown}\n-- ${name}: ${verdict} in ${Math.round((performance.now() - began) / 1_000)} s`)
}

function once({ code }) {
  return { passed: code === 0 ? 1 : 0, failed: code === 0 ? 0 : 1, skipped: 0 }
}

/** By the last line of pytest. Without it, it is unknown what was run. */
export function byPytest({ output }) {
  const last = output.trimEnd().split('\n').at(-1) ?? ''
  const number = what => Number(new RegExp(`(\\d+) ${what}`).exec(last)?.[1] ?? 0)
  const counted = { passed: number('passed'), failed: number('failed') + number('error'), skipped: number('skipped') + number('xfailed') }
  return counted.passed + counted.failed === 0 ? { passed: 0, failed: 1, skipped: 0 } : counted
}

function byClosingLine({ output }) {
  const counted = /^(\d+) passed, (\d+) failed$/m.exec(output)
  return counted === null ? { passed: 0, failed: 1, skipped: 0 } : { passed: Number(counted[1]), failed: Number(counted[2]), skipped: 0 }
}

function skip(name, reason) {
  console.log(`\n-- ${name}: SKIPPED: ${reason}`)
  total.skipped++
}

/** The wheel and the sdist, built and installed from the clone, which stays as it is. */
async function buildPackages(python) {
  const out = join(scratch, 'packages')
  const before = filesBelow(client)
  await check('build the wheel and the sdist', [python, '-m', 'build', '--no-isolation', '--outdir', out, client])
  const files = existsSync(out) ? readdirSync(out).map(name => join(out, name)) : []
  await check('twine check', [python, '-m', 'twine', 'check', '--strict', ...files])
  const wheel = files.find(file => file.endsWith('.whl')) ?? 'no wheel was built'
  const options = ['--quiet', '--no-deps', '--no-index', '--no-build-isolation', '--disable-pip-version-check']
  for (const [name, from] of [
    ['the wheel', wheel],
    ['the folder', client],
  ]) {
    const target = join(scratch, `installed-from-${basename(from)}`)
    await check(`install ${name}`, [python, '-m', 'pip', 'install', ...options, '--target', target, from])
    const modules = ['leasehold_client', 'leasehold_client.aio', 'leasehold_client.fence', 'leasehold_client.testing']
    const lines = [
      `import ${modules.join(', ')}, importlib.metadata, pathlib`,
      'folder = pathlib.Path(leasehold_client.__file__).parent',
      `assert folder.is_relative_to(${JSON.stringify(target)}) and (folder / "py.typed").exists()`,
      'assert importlib.metadata.version("leasehold-client") == leasehold_client.__version__',
    ]
    await check(`import from ${name}`, [python, '-c', lines.join('\n')], { env: { PYTHONPATH: target } })
  }
  const left = filesBelow(client).filter(file => !before.includes(file))
  report('builds and installations leave nothing in the clone', left.length === 0, left.join('\n'))
}

/** Bytecode is left out: checks that run beside this one may write it. */
function filesBelow(folder) {
  return readdirSync(folder, { recursive: true }).filter(file => !/__pycache__|\.(mypy|ruff|pytest)_cache/.test(file))
}

function checksOf(version, python, tools) {
  const pytest = ['-m', 'pytest', '-q', '-p', 'no:cacheprovider']
  const name = `tests on Python ${version}`
  const env = { LEASEHOLD_TEST_SERVER: server }
  const tests = { name, run: () => check(name, [python, ...pytest], { cwd: client, env, count: byPytest }) }
  if (tools === undefined) return [tests]
  const scenarios = { SCENARIOS: join(root, 'conformance/scenarios') }
  const driver = join(root, 'conformance/drivers/python.py')
  // From the folder of the client, whose settings count for the files outside of it as well.
  const ruff = (...words) => check(`ruff ${words[0]}`, [tools, '-m', 'ruff', ...words, '--no-cache', ...PYTHON_SOURCES], { cwd: client })
  return [
    { name: 'ruff check', run: () => ruff('check') },
    { name: 'ruff format', run: () => ruff('format', '--check') },
    { name: 'mypy', run: () => check('mypy --strict', [tools, '-m', 'mypy', '--cache-dir', join(cache, 'mypy')], { cwd: client }) },
    { name: 'packages', run: () => buildPackages(tools) },
    {
      name: 'conformance of the Python client',
      run: () => check('conformance of the Python client', [...conformance, tools, driver], { env: scenarios, count: byClosingLine }),
    },
    {
      name: 'planted mistakes',
      run: () =>
        check('mistakes planted in the Python client are found', [tools, join(root, 'conformance/planted.py'), ...conformance], {
          count: byClosingLine,
        }),
    },
    tests,
  ]
}

async function main(only) {
  const scenarios = { SCENARIOS: join(root, 'conformance/scenarios') }
  const typescript = [process.execPath, join(root, '.sim/conformance/drivers/typescript.js')]
  const checks = [
    {
      name: 'conformance of the TypeScript client',
      run: () => check('conformance of the TypeScript client', [...conformance, ...typescript], { env: scenarios, count: byClosingLine }),
    },
  ]
  const found = interpreters()
  const newest = [...found.keys()].at(-1)
  if (!found.has(OLDEST)) checks.push({ name: `Python ${OLDEST}`, run: () => skip(`Python ${OLDEST}`, 'it is not on this machine') })
  if (newest === undefined) checks.push({ name: 'Python', run: () => skip('Python', 'no Python 3.10 or newer is on this machine') })
  for (const [version, { python, tools, missing }] of await environments(found)) {
    if (missing)
      checks.push({ name: `Python ${version}`, run: () => skip(`Python ${version}`, 'its tools cannot be installed: see above') })
    else checks.push(...checksOf(version, python, tools))
  }
  const chosen = checks.filter(({ name }) => name.toLowerCase().includes(only.toLowerCase()))
  const isTests = ({ name }) => name.startsWith('tests on')
  // Tests wait for sockets and processes most of the time: those of each Python run beside the other checks.
  const lanes = [chosen.filter(check => !isTests(check)), ...chosen.filter(isTests).map(check => [check])]
  await Promise.all(
    lanes.map(async lane => {
      for (const { run } of lane) await run()
    }),
  )
  console.log(`${total.passed} passed, ${total.failed} failed${total.skipped > 0 ? `, ${total.skipped} skipped` : ''}`)
  process.exitCode = total.failed > 0 ? 1 : 0
}

process.on('exit', () => {
  for (const pid of running) endGroup(pid)
  rmSync(scratch, { recursive: true, force: true })
})

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(1))
  await main(process.argv[2] ?? '')
}
