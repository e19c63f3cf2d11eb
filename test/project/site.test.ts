/**
 * The documentation as a site: the list of pages has every page, the generated reference is up to date, the site can be built, nothing in it leads nowhere, and its
 * search finds the page that answers.
 */
import { execFile } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join, posix, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { requireFreshBuild } from '../support/fresh-build.ts'
import { SiteSearch } from '../support/site-search.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const script = join(root, 'scripts/docs.mjs')
const run = promisify(execFile)

/** The sections of docs/README.md: each heading, and the pages that its list links to, as paths from docs/. */
const sections = [...readFileSync(join(root, 'docs/README.md'), 'utf8').matchAll(/^## (.*)\n([\s\S]*?)(?=^## |$(?![\s\S]))/gm)].map(
  ([, title, body]) => ({
    title,
    pages: [...body!.matchAll(/^- \[[^\]]+\]\(([^)]+)\)/gm)].map(([, link]) => link!),
    // Linked below the list, and so without an entry in the sidebar.
    beside: [...body!.replace(/^- .*$/gm, '').matchAll(/\]\(([^)]+)\)/g)].map(([, link]) => link!),
  }),
)

function filesBelow(folder: string, extension: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(file => file.isFile() && file.name.endsWith(extension))
    .map(file => relative(folder, join(file.parentPath, file.name)))
}

test('the list of pages has the five sections, in their order', () => {
  expect(sections.map(({ title }) => title)).toEqual(['Start', 'Guides', 'Operate', 'Reference', 'Explain'])
})

test('the list of pages has every page of docs/, once', () => {
  const listed = sections.flatMap(({ pages, beside }) => [...pages, ...beside])
  const pages = filesBelow(join(root, 'docs'), '.md').filter(path => path !== 'README.md')
  expect(pages.filter(path => !listed.includes(path))).toEqual([])
  expect(listed).toEqual([...new Set(listed)])
})

test('the committed reference is what the program says', async () => {
  requireFreshBuild()
  const { stdout } = await run(process.execPath, [script, '--check']).catch((error: { stdout: string }) => error)
  expect(stdout).toBe('')
})

describe('the built site', () => {
  // Inside the repository: the pages import what is in its node_modules.
  const folder = mkdtempSync(join(root, '.site-'))
  const html = join(folder, 'html')
  let built: string[] = []

  beforeAll(async () => {
    requireFreshBuild()
    await run(process.execPath, [script, '--into', folder])
    built = filesBelow(html, '.html')
  }, 900_000)

  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  test('has every page of the sections, and the API of every entry point', () => {
    const links = sections
      .flatMap(({ pages, beside }) => [...pages, ...beside])
      .map(path => path.replace(/^\.\.\//, '').replace(/\.md$/, '.html'))
    expect(links.filter(link => !built.includes(link))).toEqual([])
    const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { exports: Record<string, unknown> }
    const entries = Object.keys(exports).filter(name => !name.includes('*') && name !== './package.json')
    const pages = entries.map(name => `reference/api/leasehold${name.slice(1).replaceAll('/', '-')}.html`)
    expect(pages.filter(page => !built.includes(page))).toEqual([])
    expect(readFileSync(join(html, 'reference/api/leasehold.html'), 'utf8')).toContain('Opens a store or connects to a server')
  })

  test('has no link, anchor or image that leads nowhere', () => {
    const pages = new Map(built.map(path => [path, readFileSync(join(html, path), 'utf8')]))
    const ids = new Map([...pages].map(([path, text]) => [path, new Set([...text.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id!))]))
    const dead = [...pages].flatMap(([path, text]) =>
      [...text.matchAll(/ (?:href|src)="([^"]+)"/g)]
        .map(([, link]) => link!.replaceAll('&amp;', '&'))
        .filter(link => !/^([a-z]+:|\/\/)/i.test(link))
        .filter(link => {
          const [file, anchor] = link.split('#') as [string, string?]
          const target = file === '' ? path : posix.normalize(file.startsWith('/') ? file.slice(1) : posix.join(posix.dirname(path), file))
          const page =
            target === '' || target.endsWith('/') || target === '.' ? posix.join(target, 'index.html') : decodeURIComponent(target)
          if (!existsSync(join(html, page))) return true
          return anchor !== undefined && anchor !== '' && ids.has(page) && !ids.get(page)!.has(decodeURIComponent(anchor))
        })
        .map(link => `${path}: ${link}`),
    )
    expect(pages.size).toBeGreaterThan(60)
    expect([...new Set(dead)]).toEqual([])
  })

  test('begins with what it is, the accidents, the quick start, numbers and the comparison', () => {
    const text = readFileSync(join(html, 'index.html'), 'utf8')
    const headings = [...text.matchAll(/<h2 id="([\w-]+)"/g)].map(([, id]) => id)
    expect(headings).toEqual(['why', 'quick-start', 'numbers', 'compared-with-others', 'what-is-promised'])
    expect(text).toContain('split brain')
    expect(text).toMatch(/<td>Redis, <code>.*?<\/td><td>\d+(\.\d+)? ×<\/td><td>\d+(\.\d+)? ×<\/td>/)
    const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string }
    expect(text).toContain(`v${version}`)
  })

  test('shows at most 35 entries in the sidebar of each page', () => {
    const counted = built.map(
      path => [path, readFileSync(join(html, path), 'utf8').match(/class="VPLink link link"/g)?.length ?? 0] as const,
    )
    expect(counted.filter(([, entries]) => entries > 35)).toEqual([])
    expect(counted.find(([path]) => path === 'stores.html')?.[1]).toBeGreaterThan(10)
  })

  test('names pages by their titles, not by their files', () => {
    const named = built
      .filter(path => !path.startsWith('files/'))
      .flatMap(path =>
        [...readFileSync(join(html, path), 'utf8').matchAll(/<a [^>]*href="[^"]*\.html[^"]*"[^>]*>([\w./-]+\.md)<\/a>/g)].map(
          ([, text]) => `${path}: ${text}`,
        ),
      )
    expect(named).toEqual([])
  })

  test.each([
    ['fencing', 'recipes/fence.html'],
    ['fence', 'recipes/fence.html'],
    ['fencing token', 'recipes/fence.html'],
    ['backfill', 'pool-queues.html'],
    ['queues', 'pool-queues.html'],
    ['preempt', 'pool-queues.html'],
    ['elections', 'recipes/election.html'],
    ['ttl', 'choosing-a-ttl.html'],
    ['lost tail', 'operate/lost-tail.html'],
    ['postgres', 'stores/postgres.html'],
    ['exit code', 'command-line.html'],
    ['gpu', 'start/gpus.html'],
    ['api keys', 'operate/keys.html'],
    ['mutual tls', 'operate/tls.html'],
    ['restore', 'operate/backup.html'],
    ['upgrading', 'operate/upgrade.html'],
    ['kubernetes leases', 'faces/kubernetes.html'],
    ['metric', 'operate/metrics.html'],
    ['alerts', 'operate/metrics.html'],
    ['python', 'python.html'],
    ['installing', 'quick-start.html'],
    ['cron', 'short-lived.html'],
    ['serverless', 'short-lived.html'],
  ])('finds for “%s” the page %s first', async (words, page) => {
    const search = await SiteSearch.of(html)
    expect(search.pagesFor(words)[0]).toBe(page)
  })
})
