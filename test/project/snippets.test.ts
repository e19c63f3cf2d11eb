/** Every TypeScript and JavaScript snippet of README.md, docs/library.md, docs/short-lived.md, docs/testing.md, docs/recipes/ and of the other pages with blocks in `ts` compiles as strictly as the source, runs and exits. */
import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { EVENT_TIMEOUT } from '../support/bounds.ts'
import { requireFreshBuild } from '../support/fresh-build.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const run = promisify(execFile)

interface Snippet {
  readonly page: string
  /** Of the first line of code, as an editor counts. */
  readonly line: number
  /** Without its extension. */
  readonly file: string
  readonly language: 'ts' | 'js'
  readonly code: string
}

const recipes = readdirSync(join(root, 'docs/recipes')).filter(name => name.endsWith('.md'))
const pages = [
  'README.md',
  'docs/quick-start.md',
  'docs/library.md',
  'docs/library-leases.md',
  'docs/short-lived.md',
  'docs/testing.md',
  'docs/agents-http.md',
  'docs/learned-terms.md',
  'docs/pool-queues.md',
  ...recipes.map(name => `docs/recipes/${name}`),
]

function snippetsOf(page: string): Snippet[] {
  const text = readFileSync(join(root, page), 'utf8')
  return [...text.matchAll(/^```(ts|js)\n(.*?)^```$/gms)].map(({ 1: language, 2: code, index }) => {
    const line = text.slice(0, index).split('\n').length + 1
    return { page, line, file: `${page.replace(/\W/g, '-')}-${line}`, language: language as Snippet['language'], code: code! }
  })
}

const snippets = pages.flatMap(snippetsOf)
const folder = mkdtempSync(join(tmpdir(), 'leasehold-snippets-'))
let complaints = ''

/** As a user has it: an installed package. */
beforeAll(async () => {
  requireFreshBuild()
  mkdirSync(join(folder, 'node_modules'))
  symlinkSync(root, join(folder, 'node_modules/leasehold'))
  symlinkSync(join(root, 'node_modules/@types'), join(folder, 'node_modules/@types'))
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
  for (const { file, language, code } of snippets) writeFileSync(join(folder, `${file}.${language}`), code)
  const { compilerOptions } = JSON.parse(readFileSync(join(root, 'tsconfig.json'), 'utf8')) as { compilerOptions: Record<string, unknown> }
  const options = { ...compilerOptions, noEmit: false, allowImportingTsExtensions: false, allowJs: true, rootDir: '.', outDir: 'out' }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions: options, include: ['*.ts', '*.js'] }))
  const tsc = join(root, 'node_modules/typescript/bin/tsc')
  complaints = await run(process.execPath, [tsc, '-p', '.'], { cwd: folder }).then(
    ({ stdout }) => stdout,
    (error: { stdout: string; stderr: string }) => error.stdout + error.stderr,
  )
})

afterAll(() => rmSync(folder, { recursive: true, force: true }))

test('no other page has a block in ts, which would not be run', () => {
  const all = readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' }).map(path => join('docs', path))
  const others = all.filter(path => path.endsWith('.md') && !pages.includes(path))
  expect(others.filter(path => /^```ts$/m.test(readFileSync(join(root, path), 'utf8')))).toEqual([])
})

test('all snippets compile', () => {
  expect(complaints).toBe('')
})

test.each(pages)('%s has a snippet', page => {
  expect(snippets.filter(snippet => snippet.page === page)).not.toEqual([])
})

describe.each(pages)('%s', page => {
  test.each(snippets.filter(snippet => snippet.page === page))('the snippet at line $line runs and exits', async ({ file }) => {
    // A folder of its own for each, so that files and the default store are its own.
    const cwd = join(folder, 'run', file)
    mkdirSync(cwd, { recursive: true })
    const env = { ...process.env, XDG_STATE_HOME: cwd }
    await run(process.execPath, [join(folder, 'out', `${file}.js`)], { cwd, env, timeout: EVENT_TIMEOUT })
  })
})

test.each(recipes.filter(name => name !== 'README.md'))(
  'docs/recipes/%s says what the recipe promises, what it does not, and which accident it avoids',
  name => {
    const headings = [...readFileSync(join(root, 'docs/recipes', name), 'utf8').matchAll(/^## (.*)$/gm)].map(([, heading]) => heading)
    expect(headings).toEqual(expect.arrayContaining(['The shortest program', 'Promised', 'Not promised', 'The accident it avoids']))
  },
)
