/** Every test checks that the programs it calls are installed: a missing program skips its tests with a message, and fails none. */
import { readdirSync, readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { find, programs } from '../support/engine.ts'

const folder = fileURLToPath(new URL('..', import.meta.url))

/** Installed on every machine that runs the tests: a shell, the essential packages of Debian, npm, and git, which made the clone. */
const EVERYWHERE = new Set(['sh', 'bash', 'touch', 'cat', 'cp', 'chmod', 'mkfifo', 'tar', 'npm', 'setpriv', 'apt-get', 'git'])

/** A call whose first argument is the name of a program. */
const CALL =
  /(?:\b(?:spawn|spawnSync|execFile|execFileSync|execFile\))\(\s*'([a-z][\w.-]*)',|\b(?:run|finished)\(\s*'([a-z][\w.-]*)',\s*\[)/g

interface Call {
  readonly file: string
  readonly program: string
  /** The exported function that contains the call, in a file that is not a test. */
  readonly within: string | undefined
}

const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(
  file => /\.(ts|mjs)$/.test(file) && file !== 'project/programs.test.ts',
)
const sources = new Map(files.map(file => [file, readFileSync(`${folder}/${file}`, 'utf8')]))

function calls(): Call[] {
  return [...sources].flatMap(([file, source]) =>
    [...source.matchAll(CALL)].map(({ 1: spawned, 2: program = spawned, index }) => {
      const before = [...source.slice(0, index).matchAll(/^export (?:async )?function (\w+)/gm)].at(-1)?.[1]
      return { file, program: program!, within: file.endsWith('.test.ts') ? undefined : before }
    }),
  )
}

/** Whether a source names the program in `describeWith`, looks it up with `find`, or tries it first. */
function looksFor(source: string, program: string): boolean {
  const name = program.replace(/\W/g, '\\$&')
  return [
    new RegExp(`programs(\\.${name}\\b|\\['${name}'\\])`),
    new RegExp(`program: '${name}'`),
    new RegExp(`find\\('${name}'\\)`),
    new RegExp(`whereAvailable\\('${name}'`),
    new RegExp(`spawnSync\\('${name}', \\['--version'\\]`),
    ...(program === 'umount' ? [/whereAvailable\('mount'/] : []),
  ].some(pattern => pattern.test(source))
}

test('a test that calls a program checks for that program, not for another of its package', () => {
  const missing = calls()
    .filter(({ program }) => !EVERYWHERE.has(program))
    .flatMap(({ file, program, within }) => {
      const callers = within === undefined ? [file] : importers(file, within)
      return callers.filter(caller => !looksFor(sources.get(caller)!, program)).map(caller => `${caller} calls ${program}`)
    })
  expect(missing).toEqual([])
})

test('the search finds calls, and a call without a check', () => {
  const called = new Set(calls().map(({ program }) => program))
  for (const program of ['etcdctl', 'redis-cli', 'redis-benchmark', 'openssl', 'dig', 'strace', 'mount', 'script'])
    expect(called).toContain(program)
  expect(looksFor("describeEngine('etcd', 'x', () => {})", 'etcdctl')).toBe(false)
  expect(looksFor('describeWith([programs.etcdctl])', 'etcdctl')).toBe(true)
})

test('programs in snippets of README.md are checked for as well', () => {
  for (const [, program] of sources.get('project/readme.test.ts')!.matchAll(/snippet\('([a-z-]+)'\)/g))
    if (program !== 'npm' && find(program!) !== undefined) expect(Object.keys(programs)).toContain(program)
})

/** Tests that import a function from a file that is not a test. */
function importers(file: string, name: string): string[] {
  return [...sources].flatMap(([other, source]) =>
    other.endsWith('.test.ts') &&
    new RegExp(`import \\{[^}]*\\b${name}\\b[^}]*\\} from '[\\w./-]*/${basename(file).replace('.', '\\.')}'`).test(source)
      ? [other]
      : [],
  )
}
