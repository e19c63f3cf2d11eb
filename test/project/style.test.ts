/**
 * House rules that a formatter cannot check: words that make a reader guess who acts, file names that say nothing, type names with two
 * meanings, and files and classes that have grown too large.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { basename, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** Name the actor instead: replica, holder, waiter, client, server, proposer, operator. A phrase may be broken over two lines of a comment. */
const WORDS = [
  ...['whoever', 'whomever', 'nobody', 'somebody', 'someone', 'anyone', 'those who', 'one who'],
  ...['told of', 'in vain', 'has no say', 'back to life'],
]

/** Places where such a word is right. */
const WORDS_ALLOWED: readonly { readonly path: string; readonly text: string; readonly reason: string }[] = [
  { path: 'test/project/style.test.ts', text: '', reason: 'it lists the words' },
  { path: 'test/support/engine.ts', text: "name === 'nobody'", reason: 'a user of the operating system' },
  { path: 'bench/engine.mjs', text: "name === 'nobody'", reason: 'a user of the operating system' },
]

/** Parts of a file name that say nothing about what is in the file. */
const NAME_PARTS = ['manager', 'managers', 'helper', 'helpers', 'util', 'utils', 'common', 'misc', 'impl']

/** Type names that are declared more than once in `src/`, with one meaning or for a reason. */
const TYPES_ALLOWED: Readonly<Record<string, string>> = {}

const MAX_FILE = 500
const FILES_ALLOWED: Readonly<Record<string, string>> = {}

const MAX_CLASS = 350
const CLASSES_ALLOWED: Readonly<Record<string, string>> = {}

type Files = ReadonlyMap<string, string>

const files = repository()
const sources = new Map([...files].filter(([path]) => isSource(path)))

test('no file uses words that hide who acts', () => {
  expect(badWords(files)).toEqual([])
})

test('file names say what is in the file', () => {
  expect([...files.keys()].filter(hasEmptyName)).toEqual([])
})

test('no type name is declared twice in src/', () => {
  expect(duplicateTypes(files)).toEqual([])
})

test(`no source file is longer than ${MAX_FILE} lines`, () => {
  expect(longFiles(sources)).toEqual([])
})

test(`no class is longer than ${MAX_CLASS} lines`, () => {
  expect(longClasses(sources)).toEqual([])
})

test('a comment of a declaration or a file is a sentence: it does not begin with “What”, “How” or “Whether”', () => {
  expect(clausesAsComments(files)).toEqual([])
})

test('every exception is still needed', () => {
  const declared = declarations(files)
  expect(Object.keys(TYPES_ALLOWED).filter(name => (declared.get(name)?.length ?? 0) < 2)).toEqual([])
  expect(Object.keys(FILES_ALLOWED).filter(path => lines(files.get(path) ?? '') <= MAX_FILE)).toEqual([])
  const classes = [...sources].flatMap(([path, text]) => classesOf(path, text))
  expect(Object.keys(CLASSES_ALLOWED).filter(name => !classes.some(found => found.name === name && found.length > MAX_CLASS))).toEqual([])
  expect(WORDS_ALLOWED.filter(({ path, text }) => !files.get(path)?.includes(text))).toEqual([])
})

describe('the checks find', () => {
  const of = (path: string, text: string): Files => new Map([[path, text]])

  test.each(WORDS)('“%s” as whole words, in any case', word => {
    const capitalized = word[0]!.toUpperCase() + word.slice(1)
    expect(badWords(of('src/a.ts', `// first\n// ${capitalized} here`))).toEqual([`src/a.ts:2 says “${capitalized}”`])
    expect(badWords(of('src/a.ts', `// un${word}ly`))).toEqual([])
  })

  test.each(['// those\n// who', '/*\n * those\n * who', 'those\nwho', '# those\n# who'])(
    'a phrase that is broken over two lines: %j',
    text => {
      expect(badWords(of('README.md', text))).toEqual([expect.stringContaining('says “those who”')])
    },
  )

  test.each(['src/wire/resp-utils.ts', 'src/leaseManager.ts', 'test/helpers/a.ts', 'src/common.ts'])('the empty name %s', path => {
    expect(hasEmptyName(path)).toBe(true)
  })

  test.each(['src/manage.ts', 'src/utility-model.ts', 'src/uncommon.ts'])('nothing wrong with %s', path => {
    expect(hasEmptyName(path)).toBe(false)
  })

  test('a type name that two files declare', () => {
    const two = new Map([
      ['src/a.ts', 'export interface Row {}'],
      ['src/b.ts', 'type Row = string\nclass Other {}'],
    ])
    expect(duplicateTypes(two)).toEqual(['Row: src/a.ts, src/b.ts'])
  })

  test('a clause as the comment of a function, a field or a constant', () => {
    const clauses = `/** What a key may do. */\nexport function allowed() {}\n  /**\n   * Whether it is open.\n   */\n  readonly open = true`
    expect(clausesAsComments(of('src/a.ts', clauses))).toEqual(['src/a.ts:1', 'src/a.ts:3'])
    expect(clausesAsComments(of('sim/a.ts', '/** How often. */\nconst TIMES = 3'))).toEqual(['sim/a.ts:1'])
    expect(clausesAsComments(of('src/a.ts', '/** Returns what a key may do. */\nfunction allowed() {}'))).toEqual([])
  })

  test('a file and a class that are too long', () => {
    const body = '  a = 1\n'.repeat(MAX_FILE)
    const long = of('src/a.ts', `export class Long<T> {\n${body}}\nclass Short {\n}\n`)
    expect(longFiles(long)).toEqual([`src/a.ts: ${MAX_FILE + 4} lines`])
    expect(longClasses(long)).toEqual([`src/a.ts: class Long has ${MAX_FILE + 2} lines`])
  })
})

// ---------------------------------------------------------------------------------------------------------------------------

/** What is written by hand: text files by their path from the root. */
function repository(): Map<string, string> {
  const folders = ['src', 'sim', 'playground', 'test', 'docs', 'bench', 'examples', 'scripts', 'spec']
  const below = folders.flatMap(folder => readdirSync(join(root, folder), { recursive: true, withFileTypes: true }))
  const found = [...readdirSync(root, { withFileTypes: true }), ...below]
    .filter(file => file.isFile() && /\.(tsx?|m?js|md|html|css|pml)$/.test(file.name))
    .map(({ parentPath, name }) => join(parentPath, name))
    .filter(path => !/\/(node_modules|dist)\//.test(path))
  return new Map(found.map(path => [relative(root, path), readFileSync(path, 'utf8')]))
}

function isSource(path: string): boolean {
  return /^(src|sim|playground)\/.*\.tsx?$/.test(path)
}

function badWords(all: Files): string[] {
  const between = String.raw`\s+(?:(?:\*|//|#|>)\s*)?`
  const pattern = new RegExp(String.raw`\b(?:${WORDS.map(word => word.replaceAll(' ', between)).join('|')})\b`, 'gi')
  return [...all].flatMap(([path, text]) =>
    [...text.matchAll(pattern)]
      .filter(({ index }) => !WORDS_ALLOWED.some(allowed => allowed.path === path && around(text, index).includes(allowed.text)))
      .map(({ 0: word, index }) => `${path}:${lines(text.slice(0, index))} says “${word.replace(/\W+/g, ' ')}”`),
  )
}

/** The places of comments such as “Whether it is open” or “What a key may do”. They name no actor and no action. */
function clausesAsComments(all: Files): string[] {
  return [...all]
    .filter(([path]) => /^(src|sim|playground|test\/support|scripts|bench|conformance)\/.*\.(tsx?|mjs)$/.test(path))
    .flatMap(([path, text]) =>
      [...text.matchAll(/\/\*\*\s+(?:\*\s+)?(?:What|How|Whether)\b/g)].map(({ index }) => `${path}:${lines(text.slice(0, index)) || 1}`),
    )
}

/** The line at an index. */
function around(text: string, index: number): string {
  return text.slice(text.lastIndexOf('\n', index) + 1).split('\n', 1)[0]!
}

function hasEmptyName(path: string): boolean {
  return path
    .split('/')
    .map(part => basename(part, '.ts').replace(/([a-z])([A-Z])/g, '$1-$2'))
    .some(part => part.split(/[-._]/).some(word => NAME_PARTS.includes(word.toLowerCase())))
}

function declarations(all: Files): Map<string, string[]> {
  const found = new Map<string, string[]>()
  for (const [path, text] of all) {
    if (!/^src\/.*\.tsx?$/.test(path)) continue
    for (const [, name] of text.matchAll(/^(?:export )?(?:declare )?(?:abstract )?(?:interface|type|class|enum) (\w+)/gm))
      found.set(name!, [...(found.get(name!) ?? []), path])
  }
  return found
}

function duplicateTypes(all: Files): string[] {
  return [...declarations(all)]
    .filter(([name, paths]) => paths.length > 1 && !(name in TYPES_ALLOWED))
    .map(([name, paths]) => `${name}: ${paths.join(', ')}`)
}

/** Of a text that ends with a newline, as an editor counts. */
function lines(text: string): number {
  return text.replace(/\n$/, '').split('\n').length
}

function longFiles(all: Files): string[] {
  return [...all]
    .filter(([path, text]) => lines(text) > MAX_FILE && !(path in FILES_ALLOWED))
    .map(([path, text]) => `${path}: ${lines(text)} lines`)
}

/** Classes at the top level. The formatter puts the closing brace of each at the start of a line. */
function classesOf(path: string, text: string): { readonly path: string; readonly name: string; readonly length: number }[] {
  return [...text.matchAll(/^(?:export )?(?:abstract )?class (\w+).*?^\}/gms)].map(([code, name]) => ({
    path,
    name: name!,
    length: lines(code),
  }))
}

function longClasses(all: Files): string[] {
  return [...all]
    .flatMap(([path, text]) => classesOf(path, text))
    .filter(({ name, length }) => length > MAX_CLASS && !(name in CLASSES_ALLOWED))
    .map(({ path, name, length }) => `${path}: class ${name} has ${length} lines`)
}
