// Compiles the package into dist/ and the simulator into .sim/, and removes outputs whose source is gone.
// Everything in scripts/ uses Node's built-ins alone: it must run in a bare clone.

import { spawnSync } from 'node:child_process'
import { chmodSync, copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

export const root = fileURLToPath(new URL('..', import.meta.url))

/** What is compiled: the package, and the simulator with a copy of the package's code, into which mistakes are planted. */
const LIBRARY = { config: 'tsconfig.build.json', sources: { src: 'dist' } }
const SIMULATOR = { config: 'tsconfig.sim.json', sources: { src: '.sim/src', sim: '.sim/sim' }, out: '.sim' }

/** The projects that a program needs before it can run. */
export function projectsFor(file) {
  return file.startsWith('.sim/') ? [LIBRARY, SIMULATOR] : [LIBRARY]
}

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
export function stale(projects = [LIBRARY, SIMULATOR]) {
  return projects.some(project => {
    const configured = Math.max(...['tsconfig.json', project.config].map(file => statSync(join(root, file)).mtimeMs))
    if (orphans(project).length > 0) return true
    return [...outputs(project)].some(([source, output]) => {
      const needed = Math.max(statSync(source).mtimeMs, source.endsWith('.ts') ? configured : 0)
      return !existsSync(output) || statSync(output).mtimeMs < needed
    })
  })
}

export function build(projects = [LIBRARY, SIMULATOR]) {
  return projects.every(project => {
    if (!run(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', project.config])) return false
    for (const file of orphans(project)) rmSync(file)
    for (const [source, output] of outputs(project)) {
      if (source.endsWith('.ts')) continue
      mkdirSync(dirname(output), { recursive: true })
      copyFileSync(source, output)
    }
    const program = join(root, 'dist/cli/leasehold.js')
    if (existsSync(program)) chmodSync(program, 0o755) // npm does so for an installed package
    return true
  })
}

/** Each source with the file that the build makes of it. The page is served as it is written. */
function* outputs({ sources, out }) {
  for (const [folder, into] of Object.entries(sources)) {
    const from = join(root, folder)
    for (const file of filesBelow(from)) {
      const output = join(root, into, relative(from, file))
      if (file.startsWith(join(root, 'src/dashboard/'))) {
        if (/\.(html|css|js|svg)$/.test(file)) yield [file, output]
      } else if (file.endsWith('.ts') && !file.endsWith('.d.ts')) yield [file, output.replace(/\.ts$/, '.js')]
    }
  }
  if (out !== undefined) yield [join(root, 'package.json'), join(root, out, 'package.json')]
}

/** Outputs whose source was renamed or removed: they would go on being imported, tested and packed. */
function orphans(project) {
  const kept = new Set([...outputs(project)].map(([, output]) => output))
  return Object.values(project.sources)
    .flatMap(into => filesBelow(join(root, into)))
    .filter(file => /\.(js|js\.map|d\.ts)$/.test(file) && !kept.has(file.replace(/(\.js|\.js\.map|\.d\.ts)$/, '.js')))
}

/** Runs `file` in this process as if Node had been called with it: signals and the exit code need no forwarding. */
export async function become(file, args) {
  process.argv = [process.execPath, join(root, file), ...args]
  await import(pathToFileURL(join(root, file)).href)
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
