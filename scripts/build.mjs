// Compiles src/ into dist/ and takes away what no source stands behind any more.
// Everything in scripts/ uses Node's built-ins alone: it must run in a bare clone.

import { spawnSync } from 'node:child_process'
import { chmodSync, copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

export const root = fileURLToPath(new URL('..', import.meta.url))
const src = join(root, 'src')
const dist = join(root, 'dist')

/** Installed what the lockfile says? Versions are compared, not dates: git gives every file the date of its checkout. */
function installed() {
  const note = join(root, 'node_modules/.package-lock.json') // npm's own note of what it has put there
  if (!existsSync(note)) return false
  const present = JSON.parse(readFileSync(note, 'utf8')).packages
  const wanted = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')).packages
  return Object.entries(wanted).every(
    ([path, { version, optional }]) => path === '' || (path in present ? present[path].version === version : optional === true),
  )
}

/** No install script runs: nothing we depend on may need one. */
export function install() {
  if (installed()) return true
  console.log('installing dependencies (npm ci)')
  return run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'])
}

/** A source without an output, or younger than its output, or an output without a source makes the whole build stale. */
export function stale() {
  const configured = Math.max(...['tsconfig.json', 'tsconfig.build.json'].map(file => statSync(join(root, file)).mtimeMs))
  if (orphans().length > 0) return true
  if (served().some(file => !existsSync(copyOf(file)) || statSync(copyOf(file)).mtimeMs < statSync(file).mtimeMs)) return true
  return sources().some(source => {
    const output = outputOf(source)
    return !existsSync(output) || statSync(output).mtimeMs < Math.max(statSync(source).mtimeMs, configured)
  })
}

export function build() {
  if (sources().length > 0 && !run(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', 'tsconfig.build.json']))
    return false
  for (const file of orphans()) rmSync(file)
  for (const file of served()) {
    mkdirSync(dirname(copyOf(file)), { recursive: true })
    copyFileSync(file, copyOf(file))
  }
  const program = join(dist, 'cli/leasehold.js')
  if (existsSync(program)) chmodSync(program, 0o755) // npm does so for those who install it
  return true
}

/** Outputs whose source was renamed or removed: they would go on being imported, tested and packed. */
function orphans() {
  const kept = new Set(sources().map(outputOf))
  return filesBelow(dist).filter(file => {
    const output = file.replace(/(\.js|\.js\.map|\.d\.ts)$/, '.js')
    return output.endsWith('.js') && !output.startsWith(join(dist, 'dashboard/')) && !kept.has(output)
  })
}

/** Runs `file` in this process as if Node had been called with it: signals and the exit code need no forwarding. */
export async function become(file, args) {
  process.argv = [process.execPath, join(root, file), ...args]
  await import(pathToFileURL(join(root, file)).href)
}

/** Files of the page, which are served as they are. */
function served() {
  return filesBelow(join(src, 'dashboard')).filter(file => /\.(html|css|js|svg)$/.test(file))
}

function copyOf(file) {
  return join(dist, relative(src, file))
}

// The page is served as it is written.
function sources() {
  return filesBelow(src).filter(file => file.endsWith('.ts') && !file.endsWith('.d.ts') && !file.startsWith(join(src, 'dashboard/')))
}

function outputOf(source) {
  return join(dist, relative(src, source).replace(/\.ts$/, '.js'))
}

function filesBelow(folder) {
  if (!existsSync(folder)) return []
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(entry => join(entry.parentPath, entry.name))
}

function run(command, args) {
  return spawnSync(command, args, { cwd: root, stdio: 'inherit' }).status === 0
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = install() && build() ? 0 : 1
