// Builds the site: copies the pages into a folder, with links that fit there, and runs VitePress on it.

import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join, posix, relative } from 'node:path'
import { build } from 'vitepress'
import { root } from '../build.mjs'
import { buildPlayground } from '../playground.mjs'
import { apiPages } from './api.mjs'
import { landingPage } from './landing.mjs'

/** Pages that are not in docs/, because a Git host looks for them in the root. They are read from the site too. */
const ROOT_PAGES = ['SECURITY.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'CODE_OF_CONDUCT.md']
/** The page that lists all others. Its sections are those of the site. */
const CONTENTS = 'docs/README.md'

/** The page of the playground. It is built beside the others, and links to it leave the pages of the site. */
const PLAYGROUND = 'playground/index.html'

/** Builds the site below `folder` and returns where its HTML is. */
export async function buildSite(folder) {
  const pages = join(folder, 'pages')
  const html = join(folder, 'html')
  rmSync(pages, { recursive: true, force: true })
  rmSync(html, { recursive: true, force: true })
  const staged = stage(pages)
  await buildPlayground(join(pages, 'public/playground'))
  await build(pages, { outDir: html, logLevel: 'warn' })
  return { html, pages: staged }
}

/** Files that a browser opens by their names. Others, such as `Dockerfile` and `leasehold.service`, are texts in the site. */
const OPENED = /\.(md|mjs|js|ts|py|json|ya?ml|svg|png|txt|html|css)$/

/** Where a file of the repository is in the site. Files that are no pages are below `files/`. */
function placeInSite(path) {
  if (path === CONTENTS) return 'contents.md'
  if (ROOT_PAGES.includes(path)) return path
  if (path.startsWith('docs/')) return path.slice('docs/'.length)
  if (path === 'README.md') return 'index.md'
  if (path === PLAYGROUND) return path
  return `files/${path}${OPENED.test(path) || statSync(join(root, path)).isDirectory() ? '' : '.txt'}`
}

function stage(folder) {
  const docs = readdirSync(join(root, 'docs'), { recursive: true, withFileTypes: true })
    .filter(file => file.isFile())
    .map(file => relative(root, join(file.parentPath, file.name)))
  const files = [...docs, ...ROOT_PAGES]
  const others = new Set()
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'index.md'), withSiteLinks(landingPage(), 'README.md', others))
  for (const path of files) {
    const target = join(folder, placeInSite(path))
    mkdirSync(dirname(target), { recursive: true })
    if (!path.endsWith('.md')) cpSync(join(root, path), target)
    else writeFileSync(target, withSiteLinks(readFileSync(join(root, path), 'utf8'), path, others))
  }
  // The folder `public` is copied to the site as it is.
  for (const path of others) cpSync(join(root, path), join(folder, 'public', placeInSite(path)), { recursive: true })
  cpSync(join(root, 'src/dashboard/page.svg'), join(folder, 'public/icon.svg'))
  const api = apiPages()
  for (const [path, text] of api) {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), text.replaceAll('../../README.md', '../../contents.md').replaceAll('README.md', 'index.md'))
  }
  mkdirSync(join(folder, '.vitepress'), { recursive: true })
  const { version, repository } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const sections = sectionsOf(readFileSync(join(root, CONTENTS), 'utf8'))
  writeFileSync(join(folder, '.vitepress/sections.json'), JSON.stringify({ sections, api: [...api.keys()], version, repository }))
  for (const name of ['config.mjs', 'search.mjs', 'theme']) {
    cpSync(new URL(name, import.meta.url), join(folder, '.vitepress', name), { recursive: true })
  }
  return files.filter(path => path.endsWith('.md')).length + 1 + api.size
}

/**
 * Changes the links of a page to where their targets are in the site, and a file name as the text of a link to the title of that page. Adds files that are linked
 * and are no pages to `others`.
 */
function withSiteLinks(text, path, others) {
  return text.replace(/(\[[^\]\n]*\]|\])\(([^)\s]+)\)/g, (whole, words, link) => {
    if (/^([a-z]+:|#)/i.test(link)) return whole
    const [file, anchor] = link.split('#')
    const target = posix.normalize(posix.join(posix.dirname(path), file))
    if (!existsSync(join(root, target))) return whole // the build reports it
    const place = placeInSite(target)
    if (target === PLAYGROUND) return `${words}(/${place})`
    if (place.startsWith('files/')) {
      others.add(target.replace(/\/$/, ''))
      return `${words}(/${place})`
    }
    const moved = posix.relative(posix.dirname(placeInSite(path)), place)
    const shown = /^\[`?[\w./-]+\.md`?\]$/.test(words) ? `[${titleOf(target)}]` : words
    return `${shown}(${moved.startsWith('.') ? moved : `./${moved}`}${anchor === undefined ? '' : `#${anchor}`})`
  })
}

function titleOf(path) {
  return /^# (.*)$/m.exec(readFileSync(join(root, path), 'utf8'))?.[1] ?? path
}

/** The sections of the list of pages: each heading, and the pages that its list links to. */
function sectionsOf(text) {
  return [...text.matchAll(/^## (.*)\n([\s\S]*?)(?=^## |$(?![\s\S]))/gm)].map(([, title, body]) => ({
    title,
    pages: [...body.matchAll(/^- \[([^\]]+)\]\(([^)]+)\)/gm)].map(([, name, link]) => ({ name, link: pageLink(link) })),
  }))
}

function pageLink(link) {
  const place = placeInSite(posix.normalize(posix.join('docs', link)))
  return `/${place.replace(/\.md$/, '').replace(/(^|\/)index$/, '$1')}`
}
