// Which files of the build a user of the package can load, and the rest, which `npm pack` leaves out: `dist/.npmignore`, written by the build.
//
// Loadable is what the entries and the program import, the declarations of that, and files that are started by their address (workers, a child process).
// The text of the built files is read as Node and the compiler would find them. Everything else in dist/ is for tests, benchmarks and the bundle.

import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'

const STATIC = /^\s*(?:import|export)\b[^'"`;]*?\bfrom\s*['"]([^'"\n]+)['"]|^\s*import\s*['"]([^'"\n]+)['"]/gm
const DYNAMIC = /\bimport\(\s*['"]([^'"\n]+)['"]\s*\)/g
const REQUIRED = /\brequire\(\s*['"]([^'"\n]+)['"]\s*\)/g
/** Files that are started by their address (below dist/library/), and the modules that start them. */
export const STARTED = {
  'connect/heartbeat-worker.js': 'connect/heartbeat-thread.js',
  'cli/certify/writer.js': 'cli/certify/fault.js',
}
/** Only where a line begins: texts may contain the signs, too. */
const COMMENTS = /^\s*\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm

/** The targets of `exports` under these conditions; a pattern stands for each file that it matches. */
export function exportTargets(root, { exports }, conditions = ['types', 'default']) {
  const targets = Object.values(exports).flatMap(target =>
    typeof target === 'string' ? [] : conditions.map(condition => target[condition]),
  )
  return targets.flatMap(target => {
    const [before, after] = target.split('*')
    return after === undefined ? [target] : namesMatching(root, target).map(name => `${before}${name}${after}`)
  })
}

/** The names for which a pattern such as `./store/*` or `./recipe/*` has a file. */
export function namesMatching(root, pattern) {
  const [before, after] = pattern.split('*')
  return readdirSync(join(root, before), { withFileTypes: true })
    .map(entry => (entry.isDirectory() ? entry.name : entry.name.endsWith(after) ? entry.name.slice(0, -after.length) : ''))
    .filter(name => name !== '' && existsSync(join(root, `${before}${name}${after}`)))
}

/** The modules that the import of `entry` loads at once, as paths from `folder`. */
export function staticImports(folder, entry) {
  const files = new Set()
  const open = [entry]
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    if (files.has(path)) continue
    files.add(path)
    for (const [, from, bare] of readFileSync(join(folder, path), 'utf8').replace(COMMENTS, '').matchAll(STATIC))
      if ((from ?? bare).startsWith('.')) open.push(join(dirname(path), from ?? bare))
  }
  return files
}

/** Paths from the root of the package, and the packages that they import. Throws if one imports a file that does not exist. */
export function loadableFiles(root) {
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const files = new Set()
  const packages = new Set()
  const started = Object.keys(STARTED).map(path => join('dist/library', path))
  const open = [...exportTargets(root, manifest), ...Object.values(manifest.bin), ...started].map(path => join(path))
  const add = (from, name) => {
    const path = join(dirname(from), from.endsWith('.d.ts') ? name.replace(/\.(js|ts)$/, '.d.ts') : name)
    if (!existsSync(join(root, path))) throw new Error(`${from} imports ${name}, which does not exist`)
    open.push(path)
  }
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    if (files.has(path)) continue
    files.add(path)
    if (!/\.(c?js|d\.ts)$/.test(path)) continue
    const text = readFileSync(join(root, path), 'utf8').replace(COMMENTS, '')
    const required = path.endsWith('.cjs') ? text.matchAll(REQUIRED) : []
    const imported = [...text.matchAll(STATIC), ...text.matchAll(DYNAMIC), ...required].map(([, from, bare]) => from ?? bare)
    for (const name of imported)
      if (name.startsWith('.')) add(path, name)
      else if (!name.startsWith('node:')) packages.add(name)
  }
  return { files, packages }
}

/** Tells npm which files of dist/ to leave out. The page of the dashboard is loaded by browsers, and stays. */
export function leaveOutUnloadable(root) {
  const { files } = loadableFiles(root)
  const dist = join(root, 'dist')
  const built = readdirSync(dist, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile())
  const left = built
    .map(entry => relative(dist, join(entry.parentPath, entry.name)))
    .filter(path => /\.(js|d\.ts)$/.test(path) && !path.startsWith('dashboard/') && !files.has(join('dist', path)))
  writeFileSync(join(dist, '.npmignore'), ['.tsbuildinfo', 'dashboard/*.d.ts', ...left.sort().map(path => `/${path}`), ''].join('\n'))
}
