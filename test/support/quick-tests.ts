/**
 * Finds the tests of the quick loop (`npm run test:quick`): those of the inner folders that start no process and open no socket. They need no engine, no
 * browser and no network. A new test is found by its folder and its imports, so there is no list to keep.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** The folders whose tests can run without a server or the command line. */
const FOLDERS = ['connect', 'holder', 'kernel', 'project', 'recipe', 'registry', 'replica', 'store', 'testing']
/** A test that imports one of these, directly or through its helpers, starts a process or opens a socket. */
const OUTSIDE = /^(node:(child_process|cluster|dgram|http|http2|https|net|tls)|playwright-core)$/

/** Tests that take long and whose subject another quick test covers. */
const SLOW: Readonly<Record<string, string>> = {
  'store/file/lessor.test.ts': 'the same suite runs on a store in memory',
  'kernel/cost.test.ts': 'it counts the work of large states',
  'kernel/codec/encode.test.ts': 'golden.test.ts compares the bytes of every command',
}

/** The paths of the quick tests, relative to the root of the repository. */
export function quickTests(): string[] {
  const folder = join(root, 'test')
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter(path => path.endsWith('.test.ts') && isInner(path) && !(path in SLOW) && !reachesOutside(join(folder, path)))
    .map(path => join('test', path))
    .sort()
}

function isInner(path: string): boolean {
  const [folder, ...rest] = path.split('/')
  return rest.length === 0 || FOLDERS.includes(folder!)
}

function reachesOutside(file: string, seen = new Set<string>()): boolean {
  if (seen.has(file)) return false
  seen.add(file)
  return importsOf(file).some(name => OUTSIDE.test(name) || (isHelper(file, name) && reachesOutside(resolve(dirname(file), name), seen)))
}

/** Sources are not followed: `connect` can reach everything, and opens only what a test names. */
function isHelper(file: string, name: string): boolean {
  if (!name.startsWith('.')) return false
  const path = resolve(dirname(file), name)
  return !relative(root, path).startsWith('src/') && (statSync(path, { throwIfNoEntry: false })?.isFile() ?? false)
}

/** Static and dynamic imports, and files that are named by a URL. */
function importsOf(file: string): string[] {
  return [...readFileSync(file, 'utf8').matchAll(/\b(?:from|import|import\(|new URL\() ?'([^']+)'/g)].map(([, name]) => name!)
}
