/**
 * A recipe, a store, a command, a face and a folder of the source each have other places that must know them: a page, an export, an entry of the API report.
 * This test finds the place that was forgotten. Each place is a list of the names that it has, and the judgement compares lists.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { COMMANDS } from '../../src/cli/command-list.ts'
import { FACE_NAMES } from '../../src/face/face.ts'
import { STORES } from '../../src/store/modules.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

interface Place {
  /** As in “the recipe barrier has no page in docs/recipes/”. */
  readonly what: string
  /** The names that are there. */
  readonly has: readonly string[]
  /** The names that need not be there, each with its reason. */
  readonly except?: Readonly<Record<string, string>>
}

interface Kind {
  readonly kind: string
  readonly names: readonly string[]
  readonly places: readonly Place[]
}

function read(path: string): string {
  return readFileSync(join(root, path), 'utf8')
}

/** What is directly in a folder. The name of a folder ends in `/`. */
/** The names of the pages in a folder, without their extension. */
function pagesIn(folder: string): string[] {
  return filesIn(listing(folder), '.md')
}

function listing(folder: string): string[] {
  return readdirSync(join(root, folder), { withFileTypes: true }).map(entry => (entry.isDirectory() ? `${entry.name}/` : entry.name))
}

function foldersIn(entries: readonly string[]): string[] {
  return entries.filter(entry => entry.endsWith('/')).map(entry => entry.slice(0, -1))
}

/** Without their extension. */
function filesIn(entries: readonly string[], extension: string): string[] {
  return entries.filter(entry => entry.endsWith(extension)).map(entry => entry.slice(0, -extension.length))
}

/** Every file of src/recipe/ is a recipe, and so is every folder, whatever it consists of. */
function modulesIn(entries: readonly string[]): string[] {
  return [...filesIn(entries, '.ts'), ...foldersIn(entries)]
}

/** A store is a folder, or a file with its module beside it. */
function storesIn(entries: readonly string[]): string[] {
  const files = filesIn(entries, '.ts')
  return [...foldersIn(entries), ...files.filter(file => files.includes(`${file}-module`))]
}

function found(text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].map(([, name]) => name!)
}

/** The first cell of every row of the tables of a page. */
function firstCells(page: string): string {
  return found(page, /^\| (.*?) \| /gm).join('\n')
}

/** The recipe of each import, or of each export, of src/leases.ts from a file or a folder of src/recipe/. */
function recipesOf(form: 'import' | 'export'): string[] {
  return found(read('src/leases.ts'), new RegExp(`^${form}\\b[^']*from '\\./recipe/([\\w-]+)[./]`, 'gm'))
}

/** The names that package.json exports under `./FOLDER/`; a pattern stands for every file, or every folder with an index, as its target says. */
function exportsUnder(folder: string): string[] {
  const { exports } = JSON.parse(read('package.json')) as { exports: Record<string, { readonly types: string }> }
  const prefix = `./${folder}/`
  const entries = listing(`src/${folder}`)
  const matched = (types: string) =>
    types.endsWith('/*/index.d.ts')
      ? foldersIn(entries).filter(name => listing(`src/${folder}/${name}`).includes('index.ts'))
      : filesIn(entries, '.ts')
  return Object.keys(exports)
    .filter(name => name.startsWith(prefix))
    .flatMap(name => (name === `${prefix}*` ? matched(exports[name]!.types) : [name.slice(prefix.length)]))
}

function reportedUnder(folder: string): string[] {
  return found(read('test/project/api-report.txt'), new RegExp(`^==== leasehold/${folder}/(.+)$`, 'gm'))
}

/** Names with a test of their own, in `test/FOLDER/NAME.test.ts` or `test/FOLDER/NAME/`. */
function testedUnder(folder: string): string[] {
  const entries = listing(`test/${folder}`)
  return [...filesIn(entries, '.test.ts'), ...foldersIn(entries)]
}

const fence = { fence: 'A guard stands beside the resource, in programs that hold no lease.' }

const kinds: readonly Kind[] = [
  {
    kind: 'recipe',
    names: modulesIn(listing('src/recipe')),
    places: [
      { what: 'page in docs/recipes/', has: filesIn(listing('docs/recipes'), '.md') },
      { what: 'export ./recipe/NAME in package.json', has: exportsUnder('recipe') },
      { what: 'section in test/project/api-report.txt', has: reportedUnder('recipe') },
      { what: 'method of Leases in src/leases.ts', has: recipesOf('import'), except: fence },
      { what: 'types in src/leases.ts', has: recipesOf('export'), except: fence },
      { what: 'test in test/recipe/', has: testedUnder('recipe') },
    ],
  },
  {
    kind: 'store',
    names: storesIn(listing('src/store')),
    places: [
      { what: 'line in src/store/modules.ts', has: STORES.map(({ name }) => name) },
      {
        what: 'page docs/stores/NAME.md, or a section in docs/stores.md',
        has: [...found(read('docs/stores.md'), /^## ([a-z]+):/gm), ...pagesIn('docs/stores')],
      },
      { what: 'export ./store/NAME in package.json', has: exportsUnder('store') },
      { what: 'section in test/project/api-report.txt', has: reportedUnder('store') },
      { what: 'test in test/store/', has: testedUnder('store') },
    ],
  },
  {
    kind: 'file of a command',
    names: modulesIn(listing('src/cli/command')),
    places: [
      { what: 'line in src/cli/command-list.ts', has: found(read('src/cli/command-list.ts'), /import\('\.\/command\/([\w-]+)[./]/g) },
    ],
  },
  {
    kind: 'command',
    names: Object.keys(COMMANDS),
    places: [
      { what: 'row in docs/command-line.md', has: found(firstCells(read('docs/command-line.md')), /`([a-z]+)[ `]/g) },
      {
        what: 'section in docs/reference/command-line.md',
        has: found(read('docs/reference/command-line.md'), /^## leasehold ([a-z]+)$/gm),
      },
    ],
  },
  {
    kind: 'face',
    names: foldersIn(listing('src/face')),
    places: [
      { what: 'name in src/face/face.ts', has: FACE_NAMES },
      { what: 'page docs/faces/NAME.md', has: pagesIn('docs/faces') },
      {
        what: 'test with the clients of its protocol',
        has: testedUnder('face').filter(
          name => listing('test/face').includes(`${name}/`) && listing(`test/face/${name}`).includes('clients.test.ts'),
        ),
      },
    ],
  },
  {
    kind: 'folder of the source',
    names: foldersIn(listing('src')),
    places: [{ what: 'row in the layout of CONTRIBUTING.md', has: found(firstCells(read('CONTRIBUTING.md')), /`src\/([a-z]+)\/`/g) }],
  },
]

/** One sentence for each place that does not know a name, and for each exception that is no longer needed. */
function forgotten({ kind, names, places }: Kind): string[] {
  return places.flatMap(({ what, has, except = {} }) => [
    ...names.filter(name => !has.includes(name) && !(name in except)).map(name => `the ${kind} ${name} has no ${what}`),
    ...Object.keys(except)
      .filter(name => has.includes(name) || !names.includes(name))
      .map(name => `the ${kind} ${name} needs no exception from: ${what}`),
  ])
}

describe.each(kinds.map(kind => [kind.kind, kind] as const))('a %s', (_, kind) => {
  test('has its other places', () => {
    expect(kind.names.length).toBeGreaterThan(3)
    expect(forgotten(kind)).toEqual([])
  })

  test('that no other place knows is noticed for each of them', () => {
    const noticed = forgotten({ ...kind, names: [...kind.names, 'made-up'] }).filter(sentence => sentence.includes(' made-up '))
    expect(noticed).toEqual(kind.places.map(({ what }) => `the ${kind.kind} made-up has no ${what}`))
  })

  test.each(kind.places.map(place => [place.what, place] as const))('that loses its %s is noticed', (what, place) => {
    for (const lost of kind.names.filter(name => !(name in (place.except ?? {})))) {
      const places = [{ ...place, has: place.has.filter(name => name !== lost) }]
      expect(forgotten({ ...kind, places })).toContain(`the ${kind.kind} ${lost} has no ${what}`)
    }
  })
})

describe('the lists', () => {
  test('have a new recipe, as a file or as a folder', () => {
    expect(modulesIn(['lock.ts', 'barrier.ts', 'queue/', 'notes.md'])).toEqual(['lock', 'barrier', 'queue'])
  })

  test('have a new store, as a folder or as a file with a module', () => {
    expect(storesIn(['etcd/', 'dynamo/', 'disk.ts', 'disk-module.ts', 'store-module.ts', 'closed.ts'])).toEqual(['etcd', 'dynamo', 'disk'])
  })

  test('have a new command and a new face', () => {
    expect(modulesIn(['run.ts', 'audit.ts', 'pool/'])).toEqual(['run', 'audit', 'pool'])
    expect(foldersIn(['redis/', 'zookeeper/', 'face.ts'])).toEqual(['redis', 'zookeeper'])
  })

  test('have an exception only while it is needed', () => {
    const place = { what: 'method', has: ['lock', 'fence'], except: fence }
    expect(forgotten({ kind: 'recipe', names: ['lock', 'fence'], places: [place] })).toEqual([
      'the recipe fence needs no exception from: method',
    ])
  })
})
