// The configuration of the site (VitePress). scripts/docs/site.mjs copies it beside the pages, with the sections of the first page.

import { readFileSync } from 'node:fs'

const { sections, api } = JSON.parse(readFileSync(new URL('sections.json', import.meta.url), 'utf8'))

/** The fragment of a heading as Git hosts make it, so that one link fits both. */
function slugify(heading) {
  return heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-')
}

const apiItems = api
  .filter(path => !path.endsWith('/index.md'))
  .map(path => ({
    text: path
      .replace(/^.*\/(.*)\.md$/, '$1')
      .replace('-store-', '/store/')
      .replace('-recipe-', '/recipe/')
      .replace('-', '/'),
    link: `/${path.replace(/\.md$/, '')}`,
  }))

export default {
  title: 'Leasehold',
  description: 'Leases for programs that must agree on who may do what, and for how long.',
  lang: 'en',
  // Headings such as `GET /v1/leases/{id}` end with braces, which are no attributes.
  markdown: { anchor: { slugify }, attrs: { disable: true } },
  head: [
    ['meta', { name: 'referrer', content: 'no-referrer' }],
    ['link', { rel: 'icon', href: '/icon.svg' }],
  ],
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    nav: sections.filter(({ pages }) => pages.length > 0).map(({ title, pages }) => ({ text: title, link: pages[0].link })),
    sidebar: sections
      .filter(({ pages }) => pages.length > 0)
      .map(({ title, pages }) => ({
        text: title,
        collapsed: false,
        items: [
          ...pages.map(({ name, link }) => ({ text: name, link })),
          ...(title === 'Reference' ? [{ text: 'API', collapsed: true, link: '/reference/api/', items: apiItems }] : []),
        ],
      })),
  },
}
