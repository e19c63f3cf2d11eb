// `npm run docs` writes the generated reference and builds the documentation as a static site into .site/html. `npm run docs:reference` only writes the reference.
//
// The site is made of the Markdown in docs/, which is also readable as it is: docs/README.md is its first page, and the sections and links of that page are its
// sidebar. The site adds the API from the doc comments of the source.

import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { buildStale, install, projectsFor, root } from './build.mjs'

async function main(onlyReference) {
  if (!install() || !buildStale(projectsFor('dist/'))) return 1
  const { referencePages } = await import('./docs/reference.mjs')
  for (const [path, text] of await referencePages()) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  if (onlyReference) return 0
  const { buildSite } = await import('./docs/site.mjs')
  const began = performance.now()
  const { html, pages } = await buildSite(join(root, '.site'))
  console.error(`${pages} pages in ${((performance.now() - began) / 1_000).toFixed(1)} s: ${html}`)
  console.error('To read them: npx vite preview --outDir .site/html, or copy the folder to any web server.')
  return 0
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = await main(process.argv.includes('--reference'))
