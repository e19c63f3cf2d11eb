/** The search of the built site, with the index and the options that its pages load. */
import { readdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

interface Found {
  readonly id: string
}

interface Index {
  search(words: string): readonly Found[]
}

interface MiniSearchClass {
  loadJSON(json: string, options: object): Index
}

/** As VitePress indexes its pages. */
const FIELDS = { fields: ['title', 'titles', 'text'], storeFields: ['title', 'titles'] }

export class SiteSearch {
  readonly #index: Index

  private constructor(index: Index) {
    this.#index = index
  }

  /** `html`: the folder of the built site. */
  static async of(html: string): Promise<SiteSearch> {
    const chunks = join(html, 'assets/chunks')
    const file = readdirSync(chunks).find(name => name.startsWith('@localSearchIndex'))
    const { default: json } = (await import(pathToFileURL(join(chunks, file!)).href)) as { default: string }
    const { indexOptions, searchOptions } = (await import(new URL('../../scripts/docs/search.mjs', import.meta.url).href)) as Record<
      string,
      object
    >
    const ofVitePress = createRequire(createRequire(import.meta.url).resolve('vitepress/package.json'))
    const MiniSearch = ofVitePress('minisearch') as MiniSearchClass
    return new SiteSearch(MiniSearch.loadJSON(json, { ...FIELDS, searchOptions, ...indexOptions }))
  }

  /** The pages that answer, the best first, each once. */
  pagesFor(words: string): readonly string[] {
    return [...new Set(this.#index.search(words).map(({ id }) => id.replace(/^\//, '').replace(/#.*$/, '')))]
  }
}
