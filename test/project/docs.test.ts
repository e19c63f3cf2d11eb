/** The documents name only files, scripts, options, models and numbers that exist. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { EXIT } from '../../src/cli/exit.ts'
import { program } from '../../src/cli/program.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

function read(path: string): string {
  return readFileSync(join(root, path), 'utf8')
}

function subfolders(folder: string): string[] {
  return readdirSync(join(root, folder), { withFileTypes: true })
    .filter(entry => entry.isDirectory())
    .map(({ name }) => join(folder, name))
}

/** Every page of the repository, by its path from the root. */
const pages = ['.', 'docs', ...subfolders('docs'), 'examples', 'bench', 'spec']
  .filter(folder => existsSync(join(root, folder)))
  .flatMap(folder => readdirSync(join(root, folder)).map(file => join(folder, file)))
  .filter(path => path.endsWith('.md'))

function matches(text: string, pattern: RegExp): string[] {
  return [...new Set([...text.matchAll(pattern)].map(([, found]) => found!))]
}

/** The fragment that GitHub derives from a heading. */
function fragment(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-')
}

describe('every page', () => {
  test.each(pages)('%s has no broken link', path => {
    const links = matches(read(path), /\]\(([^)\s]+)\)/g).filter(link => !/^[a-z]+:/.test(link))
    const broken = links.filter(link => {
      const [file, anchor] = link.split('#') as [string, string?]
      const target = file === '' ? path : join(dirname(path), file)
      if (!existsSync(join(root, target))) return true
      return anchor !== undefined && !matches(read(target), /^#+ (.*)$/gm).some(heading => fragment(heading) === anchor)
    })
    expect(broken).toEqual([])
  })

  test.each(pages)('%s names only scripts of package.json', path => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> }
    expect(matches(read(path), /\bnpm run ([\w-]+)/g).filter(name => !(name in scripts))).toEqual([])
  })
})

describe.each(['README.md', 'CONTRIBUTING.md', ...pages.filter(path => path.startsWith('docs/'))])('%s', page => {
  const text = read(page)

  test('names only files that exist', () => {
    const named = matches(text, /`((?:src|test|spec|scripts|docs|bench|examples)\/[\w./-]+)`/g)
    expect(named.filter(path => !existsSync(join(root, path)))).toEqual([])
  })

  test('names only models and variants that exist', () => {
    const named = matches(text, /`([\w-]+\.pml(?: -D\w+)*)`/g)
    const missing = named.filter(name => {
      const [file, ...flags] = name.split(' ') as [string, ...string[]]
      if (!existsSync(join(root, 'spec', file))) return true
      const head = read(join('spec', file)).split('*/')[0]!
      return flags.some(flag => !new RegExp(`^ +(holds|breaks|reaches).* ${flag}\\b`, 'm').test(head))
    })
    expect(missing).toEqual([])
  })

  test('uses only options that the simulator has', () => {
    const options = matches(read('sim/main.ts'), /^ {4}(\w+): \{ type:/gm)
    const named = matches(text, /npm run sim -- ([^`\n#]+)/g).flatMap(line => matches(line, /--(\w+)/g))
    expect(named.filter(name => !options.includes(name))).toEqual([])
  })
})

describe('the pages of the guarantees', () => {
  const text = ['guarantees', 'assumptions', 'not-promised', 'proofs'].map(page => read(`docs/${page}.md`)).join('\n')

  test('quotes planted mistakes by their exact names', () => {
    const planted = readdirSync(join(root, 'sim'))
      .filter(file => file.startsWith('planted'))
      .map(file => read(`sim/${file}`))
      .join('')
    const known = matches(planted, /^ {4}name: ['"](.*)['"],$/gm)
    const quoted = matches(text, /“([^”]+)”/g).map(name => name.replace(/\s+/g, ' '))
    expect(quoted.length).toBeGreaterThan(30)
    expect(quoted.filter(name => !known.includes(name))).toEqual([])
  })

  test('names the tests of every invariant', () => {
    const promised = matches(read('docs/guarantees.md'), /^\| (S\d+) \|/gm)
    const shown = matches(read('docs/proofs.md').split('## How each is shown')[1]!, /^\| (S\d+) \| `test\//gm)
    expect(promised).toEqual(Array.from({ length: 26 }, (_, i) => `S${i + 1}`))
    expect(shown).toEqual(promised)
  })

  test.each([
    ['65,536 in all', 'src/kernel/state/answers.ts', /\bANSWERS = 65_536\b/],
    ['8,192 records', 'src/kernel/codec/batch.ts', /\bWINDOW = 8_192\b/],
    ['100,000 in each replica', 'src/replica/replica.ts', /\bevents = 100_000\b/],
    ['8 for each resource, 16,384 resources', 'src/kernel/rule/end.ts', /HISTORY_NAMES = 16_384\nconst HISTORY_LENGTH = 8\n/],
    ['fenced resources | 100,000', 'src/kernel/rule/fence.ts', /MAX_FENCES = 100_000\b/],
    ['100,000; 20,000 first named with one key', 'src/kernel/rule/fence.ts', /FENCES_PER_KEY = 20_000\b/],
    ['1,000,000 and 10,000 unless', 'src/kernel/rule/policy.ts', /WAITERS = 10_000\nexport const LEASES = 1_000_000\n/],
    ['100 ms to 24 h; a policy may allow up to a year', 'src/kernel/rule/policy.ts', /TTL_MIN = 100\nexport const TTL_MAX = 86_400_000\n/],
    ['renewals in one command | 256 · 10,000', 'src/kernel/command.ts', /MAX_RESOURCES = 256\b/],
    ['renewals in one command | 256 · 10,000', 'src/kernel/rule/renew.ts', /MAX_RENEWALS = 10_000\b/],
    ['512 · 16,384 bytes', 'src/kernel/name.ts', /NAME_BYTES = 512\n[^\n]*\nexport const VALUE_BYTES = 16_384\n/],
    ['first term | 30 s', 'src/kernel/state/lease-state.ts', /FIRST_TERM = 30_000\b/],
    ['more than 100 ms late', 'src/replica/stall-clock.ts', /STALL = 100\b/],
    ['chains beyond 256 waiters', 'src/kernel/rule/deadlock.ts', /LONGEST = 256\b/],
    ['`timeout` (30 s, replica) or 10 s', 'src/replica/replica.ts', /timeout = 30_000\b/],
    ['`timeout` (30 s, replica) or 10 s', 'src/holder/operations.ts', /TIMEOUT = 10_000\b/],
    ['We take δ = 2ρ', 'src/holder/validity.ts', /return 2 \* clockError\b/],
    ['0.5 %\nunless `clockError`', 'src/holder/validity.ts', /clockError = 0\.005\b/],
  ])('the number in “%s” is the one in %s', (words, file, constant) => {
    expect(text).toContain(words)
    expect(read(file)).toMatch(constant)
  })
})

test('docs/command-line.md has the exit codes of the program, and no others', () => {
  const table = read('docs/command-line.md').split('## Exit codes\n')[1]!.split('\n## ')[0]!
  const named = matches(table, /^\| ([\d ·]+) \|/gm).flatMap(codes => codes.split(' · ').map(Number))
  expect(named.sort((a, b) => a - b)).toEqual(Object.values(EXIT).sort((a, b) => a - b))
})

test('docs/command-line.md has a row for every command, which links to its options in the reference', async () => {
  const linked = matches(read('docs/command-line.md'), /\]\(reference\/command-line\.md#leasehold-([\w-]+)\)/g)
  const all = await program()
  const commands = all.commands.flatMap(command =>
    command.commands.length === 0 ? [command.name()] : command.commands.map(each => `${command.name()}-${each.name()}`),
  )
  expect(commands.length).toBeGreaterThan(30)
  expect(commands.filter(command => !linked.includes(command))).toEqual([])
})

test.each([
  ['1,000 · 2 min · 2,000 · 750', 'src/kernel/rule/policy.ts', /flapHalfLife: 120_000,\n {2}flapSuppress: 2_000,\n {2}flapReuse: 750,/],
  ['1,000 · 2 min · 2,000 · 750', 'src/kernel/rule/policy.ts', /flapPenalty: 1_000, preserveShare: 85, sweepShare: 15 \}/],
  ['85 % · 5 · 5 min', 'src/kernel/rule/policy.ts', /preserveLeast: 5,\n {2}preserveMost: 300_000,/],
  ['lapses in one sweep of 5 s', 'src/kernel/rule/service.ts', /\bSWEEP = 5_000\b/],
  ['max(2, ', 'src/kernel/rule/service.ts', /\bFEW = 2\b/],
  ['16 · `flapReuse`', 'src/kernel/rule/flap.ts', /\bLONGEST = 16\b/],
  ['65,536 keys are remembered', 'src/kernel/rule/flap.ts', /\bMAX_FLAPS = 65_536\b/],
  ['metadata 8 KiB of JSON, 16 deep', 'src/registry/entry.ts', /MAX_METADATA = 8_192\nexport const MAX_DEPTH = 16\n/],
  [
    '64 capabilities and 64 tags of 128 bytes; 16 addresses',
    'src/registry/entry.ts',
    /MAX_WORDS = 64\nconst MAX_WORD_BYTES = 128\nconst MAX_ADDRESSES = 16\n/,
  ],
  ['every 5 s (or', 'src/recipe/registry/discovery-feed.ts', /\bPROBE_INTERVAL = 5_000\b/],
  ['a third of a ttl (10 s at most)', 'src/recipe/registry/registrar.ts', /\bSPREAD = 10_000\b/],
])('the number in “%s” of the pages of the registry is the one in %s', (words, file, constant) => {
  expect(read('docs/registry.md') + read('docs/registry-server.md')).toContain(words)
  expect(read(file)).toMatch(constant)
})

test('every alert rule has a runbook and a row in docs/operate/metrics.md', () => {
  const alerts = matches(read('ops/prometheus/alerts.yml'), /- alert: (\w+)/g)
  expect(alerts.length).toBeGreaterThan(8)
  expect(matches(read('docs/runbooks.md') + read('docs/operate/limits.md'), /^## (\w+)$/gm)).toEqual(expect.arrayContaining(alerts))
  expect(matches(read('docs/operate/metrics.md'), /^\| \[(\w+)\]/gm)).toEqual(expect.arrayContaining(alerts))
})

const MAX_WORDS = 1_500

/** Without what `npm run bench -- --write-docs` has written: rows of numbers, as in a reference. */
function withoutFigures(text: string): string {
  return text.replace(/^<!-- npm run bench -- --write-docs writes from here -->\n[\s\S]*?^<!-- to here -->$/gm, '')
}

test('a page outside the reference and the proofs has at most 1,500 words', () => {
  const reference = matches(read('docs/README.md').split('## Reference\n')[1]!.split('\n## ')[0]!, /\]\(([^)]+)\)/g).map(
    link => `docs/${link}`,
  )
  const counted = pages
    .filter(path => path.startsWith('docs/') && path !== 'docs/proofs.md' && !reference.includes(path))
    .map(
      path =>
        [
          path,
          withoutFigures(read(path))
            .split(/\s+/)
            .filter(word => word !== '').length,
        ] as const,
    )
  expect(counted.length).toBeGreaterThan(50)
  expect(counted.filter(([, words]) => words > MAX_WORDS)).toEqual([])
})
