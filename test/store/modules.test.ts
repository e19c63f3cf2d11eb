import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { systemClock } from '../../src/clock.ts'
import { STORES, storeModule } from '../../src/store/modules.ts'
import { engineServers } from '../support/engine.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const read = (path: string) => readFileSync(`${root}/${path}`, 'utf8')
const docs = [read('docs/stores.md'), ...readdirSync(`${root}/docs/stores`).map(page => read(`docs/stores/${page}`))].join('\n')
const manifest = JSON.parse(readFileSync(`${root}/package.json`, 'utf8')) as {
  readonly peerDependencies: Record<string, string>
  readonly peerDependenciesMeta: Record<string, { readonly optional?: boolean }>
}

test('no two stores share a name or a scheme, and every scheme finds its module', () => {
  const names = STORES.map(({ name }) => name)
  const schemes = STORES.flatMap(module => module.schemes)
  expect(new Set(names).size).toBe(names.length)
  expect(new Set(schemes).size).toBe(schemes.length)
  for (const module of STORES) for (const scheme of module.schemes) expect(storeModule(scheme)).toBe(module)
  expect(storeModule('ftp')).toBeUndefined()
  expect(storeModule(undefined)).toBeUndefined()
})

const absent = (...texts: readonly string[]) => texts.filter(text => !docs.includes(text))

describe.each(STORES.map(module => [module.name, module] as const))('the module %s', (name, module) => {
  test('has an entry of the package and a test at the mirrored path', () => {
    const sources = [`src/store/${name}.ts`, `src/store/${name}/index.ts`]
    const tests = [`test/store/${name}.test.ts`, `test/store/${name}/${name}.test.ts`]
    expect(sources.filter(path => existsSync(`${root}/${path}`))).toHaveLength(1)
    expect(tests.filter(path => existsSync(`${root}/${path}`))).toHaveLength(1)
  })

  test('is described in docs/stores.md: a section or a page of its own, every scheme, and what it is for', () => {
    const section = existsSync(`${root}/docs/stores/${name}.md`) ? `(stores/${name}.md)` : `\n## ${module.schemes[0]}:`
    expect(absent(section, ...module.schemes.map(scheme => `\`${scheme}:`), module.purpose)).toEqual([])
  })

  test('names a driver that is an optional peer dependency, or none', () => {
    if (module.driver === undefined) return
    expect(manifest.peerDependencies).toHaveProperty(module.driver.package)
    expect(manifest.peerDependenciesMeta[module.driver.package]).toEqual({ optional: true })
    expect(absent(module.driver.install)).toEqual([])
  })

  test('names the server that tests start, or none', () => {
    if (module.server !== undefined) expect(Object.values(engineServers)).toContainEqual(expect.objectContaining(module.server))
  })

  test('creates a store from its URL without connecting', async () => {
    const url = module.url.replace('HOST', '127.0.0.1:1').replace('PATH', '/nonexistent/leases.db')
    await using store = await module.fromUrl(url, { clock: systemClock })
    expect(store.profile.store).toBe(name)
  })
})
