/** The documentation as a site: its first page lists every page, the generated reference is up to date, the site can be built, and nothing in it leads nowhere. */
import { execFile } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join, posix, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { requireFreshBuild } from '../support/fresh-build.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const script = join(root, 'scripts/docs.mjs')
const run = promisify(execFile)

/** The sections of docs/README.md: each heading, and the pages that its list links to, as paths from docs/. */
const sections = [...readFileSync(join(root, 'docs/README.md'), 'utf8').matchAll(/^## (.*)\n([\s\S]*?)(?=^## |$(?![\s\S]))/gm)].map(
  ([, title, body]) => ({
    title,
    pages: [...body!.matchAll(/^- \[[^\]]+\]\(([^)]+)\)/gm)].map(([, link]) => link!),
  }),
)

function filesBelow(folder: string, extension: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(file => file.isFile() && file.name.endsWith(extension))
    .map(file => relative(folder, join(file.parentPath, file.name)))
}

test('the first page has the five sections, in their order', () => {
  expect(sections.map(({ title }) => title)).toEqual(['Start', 'Guides', 'Operate', 'Reference', 'Explain'])
})

test('the first page lists every page of docs/, once', () => {
  const listed = sections.flatMap(({ pages }) => pages)
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
    const links = sections.flatMap(({ pages }) => pages).map(path => path.replace(/^\.\.\//, '').replace(/\.md$/, '.html'))
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
})
