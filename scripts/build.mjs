// `npm run build`: compiles the package into dist/ and bundles its dashboard, compiles the simulator and the conformance suite into .sim/, and removes outputs whose source is gone.
// `--stale` builds only what is older than its source, `--package` only the package. `--noCheck` leaves the check of types to `npm run types`.
// The scripts use only Node's built-in modules, because they must run in a bare clone. Progress goes to stderr: stdout belongs to the program that follows.

import { spawnSync } from 'node:child_process'
import { chmodSync, copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, utimesSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { leaveOutUnloadable } from './packed-files.mjs'

export const root = fileURLToPath(new URL('..', import.meta.url))

/** The published package. */
const PACKAGE = {
  name: 'the package',
  out: 'dist',
  config: 'tsconfig.build.json',
  sources: { src: 'dist' },
  /** Made by scripts/bundle.mjs, of all of src/ and of these. */
  bundle: {
    entry: 'dist/cli/leasehold.js',
    parts: ['dist/cli/bundle/', 'dist/library/'],
    inputs: [
      ...['package.json', 'package-lock.json', 'ops/docker/Dockerfile', 'ops/docker/package-lock.json'],
      ...['bundle', 'bundled-packages', 'dashboard', 'sbom'].map(name => `scripts/${name}.mjs`),
    ],
  },
}
/** The simulator, with its own copy of the package's code, into which it plants mistakes, and the conformance suite of clients. Neither is published. */
const SIMULATOR = {
  name: 'the simulator',
  out: '.sim',
  config: 'tsconfig.sim.json',
  sources: { src: '.sim/src', sim: '.sim/sim', conformance: '.sim/conformance' },
  copied: ['package.json'],
  /** `npm run types` checks it, with everything else. */
  options: ['--noCheck'],
}

/** The projects that must be built before `file` can run. */
export function projectsFor(file) {
  return file.startsWith('.sim/') ? [PACKAGE, SIMULATOR] : [PACKAGE]
}

/** Installs the dependencies, unless they are installed. Runs no install scripts: no dependency may need one. */
export function install() {
  if (isInstalled()) return true
  console.error('installing dependencies (npm ci)')
  return run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'])
}

/** Compares versions with the lockfile. Dates would not do: git gives every file the date of its checkout. */
function isInstalled() {
  const installedLock = join(root, 'node_modules/.package-lock.json') // written by npm
  if (!existsSync(installedLock)) return false
  const present = JSON.parse(readFileSync(installedLock, 'utf8')).packages
  const wanted = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')).packages
  return Object.entries(wanted).every(
    ([path, { version, optional }]) => path === '' || (path in present ? present[path].version === version : optional === true),
  )
}

/** Builds those of the projects that are stale. */
export function buildStale(projects) {
  return build(projects.filter(isStale))
}

/** A project is stale if an output is missing or older than its source, or if an output has no source. */
export function isStale(project) {
  const configured = Math.max(...['tsconfig.json', project.config].map(file => statSync(join(root, file)).mtimeMs))
  return (
    orphans(project).length > 0 ||
    isBundleStale(project) ||
    outputs(project).some(([source, output]) => {
      const needed = Math.max(statSync(source).mtimeMs, source.endsWith('.ts') ? configured : 0)
      return !existsSync(output) || statSync(output).mtimeMs < needed
    })
  )
}

function isBundleStale({ bundle, sources }) {
  if (bundle === undefined) return false
  const entry = join(root, bundle.entry)
  const files = [...bundle.inputs.map(file => join(root, file)), ...Object.keys(sources).flatMap(folder => filesBelow(join(root, folder)))]
  return !existsSync(entry) || files.some(file => statSync(file).mtimeMs > statSync(entry).mtimeMs)
}

function build(projects) {
  return projects.every(project => {
    const began = performance.now()
    console.error(`building ${project.name} into ${project.out}/`)
    if (!compile(project)) return false
    for (const file of orphans(project)) rmSync(file)
    for (const [source, output] of outputs(project)) if (!/\.tsx?$/.test(source)) copy(source, output)
    if (project.bundle !== undefined) {
      if (!run(process.execPath, [join(root, 'scripts/bundle.mjs')])) return false
      // As npm does when it installs the package.
      for (const entry of [project.bundle.entry, 'dist/cli/leasehold-guard.cjs']) chmodSync(join(root, entry), 0o755)
      leaveOutUnloadable(root)
    }
    console.error(`built ${project.name} in ${((performance.now() - began) / 1_000).toFixed(1)} s`)
    return true
  })
}

/**
 * Compiles what has changed since the last build. The compiler does not notice that an output was removed, so its record of the build goes first. It also
 * leaves alone the output of a source that is newer and has the same content, which would count as stale for ever. So every output gets the date at which the
 * compiler began: a source that changes meanwhile is newer.
 */
function compile(project) {
  const record = join(root, project.out, '.tsbuildinfo')
  if (outputs(project).some(([, output]) => !existsSync(output))) rmSync(record, { force: true })
  const compiler = join(root, 'node_modules/typescript/bin/tsc')
  const began = new Date()
  const options = new Set([...(project.options ?? []), ...(process.argv.includes('--noCheck') ? ['--noCheck'] : [])])
  const args = ['-p', project.config, '--incremental', '--tsBuildInfoFile', record, ...options]
  if (!run(process.execPath, [compiler, ...args])) return false
  for (const [source, output] of outputs(project)) if (source.endsWith('.ts') && existsSync(output)) utimesSync(output, began, began)
  return true
}

function copy(source, output) {
  mkdirSync(dirname(output), { recursive: true })
  copyFileSync(source, output)
}

/** Pairs of a source and the file that the build makes of it. The program and the style sheets of the dashboard are bundled, its other files copied. */
function outputs({ sources, out, copied = [] }) {
  const pairs = copied.map(file => [join(root, file), join(root, out, file)])
  const bundle = ['page.js', 'page.css'].map(file => join(root, out, 'dashboard', file))
  for (const [folder, into] of Object.entries(sources)) {
    const from = join(root, folder)
    for (const file of filesBelow(from)) {
      const output = join(root, into, relative(from, file))
      if (file.startsWith(join(root, 'src/dashboard/'))) {
        if (out !== PACKAGE.out) continue // the simulator has no use for it
        if (/\.(html|svg)$/.test(file)) pairs.push([file, output])
        else if (/\.(tsx?|css)$/.test(file)) pairs.push(...bundle.map(bundled => [file, bundled]))
      } else if (file.endsWith('.ts') && !file.endsWith('.d.ts')) pairs.push([file, output.replace(/\.ts$/, '.js')])
    }
  }
  return pairs
}

/** Outputs whose source was renamed or removed. They must go, or they would still be imported, tested and packed. */
function orphans(project) {
  const { bundle } = project
  const expected = new Set(outputs(project).map(([, output]) => output))
  const isBundle = file =>
    bundle !== undefined && (file === join(root, bundle.entry) || bundle.parts.some(parts => file.startsWith(join(root, parts))))
  return Object.values(project.sources)
    .flatMap(folder => filesBelow(join(root, folder)))
    .filter(
      file =>
        !isBundle(file) && /\.(js|js\.map|d\.ts)$/.test(file) && (file.endsWith('.map') || !expected.has(file.replace(/\.d\.ts$/, '.js'))),
    )
}

/** Runs `file` in this process, as if Node had been called with it: signals and the exit code need no forwarding. */
export async function runHere(file, args) {
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

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const projects = process.argv.includes('--package') ? [PACKAGE] : [PACKAGE, SIMULATOR]
  const work = process.argv.includes('--stale') ? buildStale : build
  process.exitCode = install() && work(projects) ? 0 : 1
}
