// The configuration of the site (VitePress). scripts/docs/site.mjs copies it beside the pages, with the sections of docs/README.md.

import { readFileSync } from 'node:fs'
import { indexOptions, searchOptions } from './search.mjs'

const { sections, api, version, repository } = JSON.parse(readFileSync(new URL('sections.json', import.meta.url), 'utf8'))

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

const shownSections = sections.filter(({ pages }) => pages.length > 0)

/** A page shows the sidebar of its own section, so that it stays short. */
const sidebar = Object.fromEntries(
  shownSections.flatMap(({ title, pages }) => {
    const isReference = title === 'Reference'
    const items = [
      ...pages.map(({ name, link }) => ({ text: name, link })),
      ...(isReference ? [{ text: 'API', collapsed: true, link: '/reference/api/', items: apiItems }] : []),
    ]
    const own = [{ text: title, items }]
    return [...pages.map(({ link }) => [link, own]), ...(isReference ? [['/reference/', own]] : [])]
  }),
)

/** A line breaks between the words of code in a table, and not inside an option such as `--max-ttl`. */
function keepWords(markdown) {
  const render = markdown.renderer.rules.code_inline
  markdown.renderer.rules.code_inline = (tokens, i, options, env, self) =>
    render(tokens, i, options, env, self).replace(/(>)([^<]*)(<)/g, (_, before, text, after) => {
      return `${before}${text.replace(/[^\s]*-[^\s]*/g, word => `<span class="whole">${word}</span>`)}${after}`
    })
}

/** The playground is a page of its own, which the router of the site must not look for among its pages. */
function leaveTo(markdown) {
  const open = markdown.renderer.rules.link_open
  markdown.renderer.rules.link_open = (tokens, i, options, env, self) => {
    if (tokens[i].attrGet('href')?.startsWith('/playground/')) tokens[i].attrSet('target', '_self')
    return open?.(tokens, i, options, env, self) ?? self.renderToken(tokens, i, options)
  }
}

function configure(markdown) {
  keepWords(markdown)
  leaveTo(markdown)
}

export default {
  title: 'Leasehold',
  description: 'Leases for programs that must agree on who may do what, and for how long.',
  lang: 'en',
  // Headings such as `GET /v1/leases/{id}` end with braces, which are no attributes.
  markdown: { anchor: { slugify }, attrs: { disable: true }, config: configure },
  head: [
    ['meta', { name: 'referrer', content: 'no-referrer' }],
    ['link', { rel: 'icon', href: '/icon.svg' }],
  ],
  themeConfig: {
    logo: '/icon.svg',
    search: { provider: 'local', options: { miniSearch: { options: indexOptions, searchOptions } } },
    outline: [2, 3],
    nav: [
      ...shownSections.map(({ title, pages }) => ({
        text: title,
        link: pages[0].link,
        activeMatch: `^(${pages.map(({ link }) => link).join('|')})$`,
      })),
      { text: `v${version}`, link: '/CHANGELOG' },
    ],
    ...(repository === undefined ? {} : { socialLinks: [{ icon: 'git', link: repository.url ?? repository }] }),
    sidebar,
  },
}
