/**
 * Finds the tests that start no process and open no socket, and so need no engine, no browser and no network: the inner tests of `npm test`, and those of the
 * quick loop (`npm run test:quick`). Of the others, it finds those that can share loaded modules. A new test is found by its folder, its imports and its text,
 * so there is no list to keep.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** The folders whose tests can run without a server or the command line; the quick loop runs these. */
const FOLDERS = ['connect', 'holder', 'kernel', 'project', 'recipe', 'registry', 'replica', 'store', 'testing']
/** More folders of which that is true. */
const MORE_FOLDERS = ['agent', 'devices', 'learn', 'lessor', 'pool', 'sim']
/** A test that imports one of these, directly or through its helpers, starts a process or opens a socket. */
const OUTSIDE = /^(node:(child_process|cluster|dgram|http|http2|https|net|tls)|playwright-core)$/

/** A test that replaces modules would replace them for the tests after it in the same process. */
const REPLACES_MODULES = /\bvi\.(mock|doMock|resetModules)\(/
/** Such a test does this to its process, or measures this of it: the tests before and after it in the same process would be noticed. */
const NEEDS_OWN_PROCESS = /--expose-gc|Error\.stackTraceLimit|\b(cpuUsage|memoryUsage)\b|process\.on\('(unhandledRejection|worker)'/

/** Tests that take long and whose subject another quick test covers. */
const SLOW: Readonly<Record<string, string>> = {
  'store/file/lessor.test.ts': 'the same suite runs on a store in memory',
  'kernel/cost.test.ts': 'it counts the work of large states',
  'kernel/codec/encode.test.ts': 'golden.test.ts compares the bytes of every command',
}

/** The paths of the quick tests, relative to the root of the repository. */
export function quickTests(): string[] {
  return testsWithin(FOLDERS).filter(path => !(relative('test', path) in SLOW))
}

/** The paths of the tests that replace modules of the source, relative to the root of the repository. They need the source: a module of the build cannot be replaced. */
export function replacingTests(): string[] {
  return testFiles()
    .map(path => join('test', path))
    .filter(path => REPLACES_MODULES.test(readFileSync(join(root, path), 'utf8')))
}

/** The paths of all tests that only compute and can share loaded modules with others, relative to the root of the repository. */
export function innerTests(): string[] {
  return testsWithin([...FOLDERS, ...MORE_FOLDERS]).filter(path => !REPLACES_MODULES.test(readFileSync(join(root, path), 'utf8')))
}

/**
 * The paths of the tests that start processes and open sockets and can share loaded modules with others, relative to the root of the repository. Loading the
 * server takes more than a second of CPU, which is longer than most of its test files take.
 */
export function sharingTests(): string[] {
  const inner = new Set(innerTests())
  return testFiles()
    .map(path => join('test', path))
    .filter(path => !inner.has(path))
    .filter(path => {
      const text = readFileSync(join(root, path), 'utf8')
      return !REPLACES_MODULES.test(text) && !NEEDS_OWN_PROCESS.test(text)
    })
}

function testsWithin(folders: readonly string[]): string[] {
  return testFiles()
    .filter(path => isIn(folders, path) && !reachesOutside(join(root, 'test', path)))
    .map(path => join('test', path))
}

/** Relative to the folder of the tests. */
function testFiles(): string[] {
  return readdirSync(join(root, 'test'), { recursive: true, encoding: 'utf8' })
    .filter(path => path.endsWith('.test.ts'))
    .sort()
}

function isIn(folders: readonly string[], path: string): boolean {
  const [folder, ...rest] = path.split('/')
  return rest.length === 0 || folders.includes(folder!)
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
