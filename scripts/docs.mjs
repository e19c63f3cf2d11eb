// `npm run docs` writes the generated reference and builds the documentation as a static site into .site/html. `npm run docs:reference` only writes the reference.
// `--check` compares the reference with the committed pages instead of writing it, and `--into FOLDER` builds the site elsewhere: for tests.
//
// The site is made of the Markdown in docs/, which is also readable as it is: docs/README.md is its first page, and the sections and links of that page are its
// sidebar. The site adds the API from the doc comments of the source.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { buildStale, install, projectsFor, root } from './build.mjs'

async function main({ reference, check, into }) {
  // Tests run after the build, and other tests use it at the same time.
  const isTest = check || into !== undefined
  if (!isTest && !(install() && buildStale(projectsFor('dist/')))) return 1
  const { referencePages } = await import('./docs/reference.mjs')
  const pages = await referencePages()
  if (check) return reportStale(pages)
  if (!isTest) for (const [path, text] of pages) write(path, text)
  if (reference) return 0
  const { buildSite } = await import('./docs/site.mjs')
  const began = performance.now()
  const site = await buildSite(into ?? join(root, '.site'))
  console.error(`${site.pages} pages in ${((performance.now() - began) / 1_000).toFixed(1)} s: ${site.html}/index.html`)
  if (!isTest) console.error('To read them: npx vite preview --outDir .site/html, or copy the folder to any web server.')
  return 0
}

function write(path, text) {
  mkdirSync(dirname(join(root, path)), { recursive: true })
  writeFileSync(join(root, path), text)
}

function reportStale(pages) {
  const stale = [...pages].filter(([path, text]) => !existsSync(join(root, path)) || readFileSync(join(root, path), 'utf8') !== text)
  for (const [path] of stale) console.log(`${path} is not what the program says: run npm run docs:reference`)
  return stale.length === 0 ? 0 : 1
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({ options: { reference: { type: 'boolean' }, check: { type: 'boolean' }, into: { type: 'string' } } })
  process.exitCode = await main(values)
}
