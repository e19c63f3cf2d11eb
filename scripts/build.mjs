// Compiles src/ into dist/ and takes away what sources no longer stand behind.
// Everything in scripts/ uses Node's built-ins alone: it must run in a bare clone.

import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, rmSync, statSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

export const root = fileURLToPath(new URL('..', import.meta.url))
const src = join(root, 'src')
const dist = join(root, 'dist')

/** Every file below `folder`, as full paths; none when there is no such folder. */
export function filesBelow(folder) {
  if (!existsSync(folder)) return []
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(entry => join(entry.parentPath ?? entry.path, entry.name))
}

// The dashboard has a build of its own.
const sources = () =>
  filesBelow(src).filter(file => file.endsWith('.ts') && !file.endsWith('.d.ts') && !file.startsWith(join(src, 'dashboard/')))
const outputOf = source => join(dist, relative(src, source).replace(/\.ts$/, '.js'))

/** Installed as the lockfile says? npm leaves its own copy of the lockfile behind when it has finished. */
export function installed() {
  const done = join(root, 'node_modules/.package-lock.json')
  return existsSync(done) && statSync(done).mtimeMs >= statSync(join(root, 'package-lock.json')).mtimeMs
}

export function install() {
  return installed() || run('npm', ['ci', '--no-audit', '--no-fund'])
}

/** A source without an output, or newer than its output, makes the whole build stale. */
export function stale() {
  const configured = Math.max(...['tsconfig.json', 'tsconfig.build.json'].map(file => statSync(join(root, file)).mtimeMs))
  return sources().some(source => {
    const output = outputOf(source)
    return !existsSync(output) || statSync(output).mtimeMs < Math.max(statSync(source).mtimeMs, configured)
  })
}

export function build() {
  if (sources().length === 0) return true
  if (!run(join(root, 'node_modules/.bin/tsc'), ['-p', 'tsconfig.build.json'])) return false
  prune()
  return true
}

/** An output whose source was renamed or removed would go on being imported, tested and packed. */
function prune() {
  const wanted = new Set(
    sources().flatMap(source => ['.js', '.js.map', '.d.ts', '.d.ts.map'].map(end => outputOf(source).replace(/\.js$/, end))),
  )
  for (const file of filesBelow(dist)) {
    if (/\.(js|d\.ts)(\.map)?$/.test(file) && !file.startsWith(join(dist, 'dashboard/')) && !wanted.has(file)) rmSync(file)
  }
}

/** Runs to the end with our own terminal; true when it went well. */
export function run(command, args) {
  return spawnSync(command, args, { cwd: root, stdio: 'inherit' }).status === 0
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  process.exitCode = install() && build() ? 0 : 1
}
