// Benchmark of the package as users install it: size, time and memory of `import 'leasehold'`, and the time until the first lease is held.
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { percentile, scratch, seconds } from './measure.mjs'
import { atMost } from './row.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const FIRST_LEASE = `import { connect } from 'leasehold'
const leases = await connect('file:leases.db')
await leases.request('jobs/nightly', lease => console.log(lease.token))
await leases.close()
`

/** Time and memory of an import in a process of its own, in ms and MB: the median of several. */
function importOf(address, times) {
  const program = `const began = performance.now(), before = process.memoryUsage().rss
    await import(${JSON.stringify(address)})
    console.log(performance.now() - began, (process.memoryUsage().rss - before) / 1e6)`
  const rounds = Array.from({ length: times }, () =>
    execFileSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' }).split(' ').map(Number),
  )
  return [0, 1].map(i =>
    percentile(
      rounds.map(round => round[i]).sort((a, b) => a - b),
      0.5,
    ),
  )
}

function megabytes(folder) {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile())
  return files.reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0) / 1e6
}

function npm(cwd, ...args) {
  // Without the settings of the npm that runs this: they name the folder of the repository.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name)))
  const { status, stdout, stderr } = spawnSync('npm', args, { cwd, env, encoding: 'utf8' })
  if (status !== 0) throw new Error(`npm ${args.join(' ')} failed: ${stderr}`)
  return stdout
}

export async function library(report, { quick }) {
  const times = quick ? 5 : 15
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const [ms, mb] = importOf(pathToFileURL(join(root, manifest.exports['.'].default)).href, times)
  const [bundledFrom] = importOf(pathToFileURL(join(root, 'dist/index.js')).href, times)
  report({ name: "import 'leasehold', time", unit: 'ms', value: ms, want: atMost(60) })
  report({ name: 'the same as single modules, time', unit: 'ms', value: bundledFrom })
  report({ name: "import 'leasehold', memory", unit: 'MB', value: mb, want: atMost(12) })

  const folder = join(scratch(), 'package')
  mkdirSync(folder)
  const [{ filename, size, unpackedSize }] = JSON.parse(npm(root, 'pack', '--ignore-scripts', '--json', '--pack-destination', folder))
  writeFileSync(join(folder, 'package.json'), '{"private":true,"type":"module"}')
  writeFileSync(join(folder, 'first.js'), FIRST_LEASE)
  const began = seconds()
  npm(folder, 'install', '--no-audit', '--no-fund', `./${filename}`)
  const token = execFileSync(process.execPath, ['first.js'], { cwd: folder, encoding: 'utf8' })
  if (!(Number(token) > 0)) throw new Error(`the first lease was not held: ${token}`)
  report({ name: 'npm install of the package, to the first lease', unit: 's', value: seconds() - began, want: atMost(20) })
  report({ name: 'lines of that program', unit: 'lines', value: FIRST_LEASE.trim().split('\n').length, want: atMost(10) })
  report({ name: 'the packed package', unit: 'MB', value: size / 1e6 })
  report({ name: 'the package, installed', unit: 'MB', value: unpackedSize / 1e6 })
  report({ name: 'with everything that npm installs', unit: 'MB', value: megabytes(join(folder, 'node_modules')) })
  if (quick) return
  const without = join(scratch(), 'without')
  mkdirSync(without)
  writeFileSync(join(without, 'package.json'), '{"private":true}')
  npm(without, 'install', '--no-audit', '--no-fund', '--omit=optional', join(folder, filename))
  report({ name: 'the same with --omit=optional (Node 22.13 or later)', unit: 'MB', value: megabytes(join(without, 'node_modules')) })
}
