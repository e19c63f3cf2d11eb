/** What the npm package contains, exports and depends on. */
import { execFile } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { requireFreshBuild } from '../support/fresh-build.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

interface Manifest {
  readonly engines: { readonly node: string }
  readonly exports: Record<string, string | Record<string, string>>
  readonly bin: Record<string, string>
  readonly dependencies?: Record<string, string>
  readonly optionalDependencies?: Record<string, string>
  readonly devDependencies: Record<string, string>
  readonly peerDependencies?: Record<string, string>
  readonly peerDependenciesMeta?: Record<string, { readonly optional?: boolean }>
}

interface Locked {
  readonly version?: string
  readonly resolved?: string
  readonly dev?: boolean
  readonly peer?: boolean
  readonly hasInstallScript?: boolean
  readonly engines?: { readonly node?: string }
}

const manifest = JSON.parse(readFileSync(`${root}/package.json`, 'utf8')) as Manifest
const lock = (JSON.parse(readFileSync(`${root}/package-lock.json`, 'utf8')) as { packages: Record<string, Locked> }).packages

/** What `npm install leasehold` installs for a user. */
const runtime = Object.entries(lock).filter(([path, { dev, peer }]) => path !== '' && !dev && !peer)

test('the package contains the build and the documents: no tests, no sources, no scripts', { timeout: 900_000 }, async () => {
  requireFreshBuild()
  const { stdout } = await promisify(execFile)('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: root })
  const [{ files }] = JSON.parse(stdout) as [{ files: { path: string }[] }]
  const paths = files.map(file => file.path)
  const allowed =
    /^(package\.json|LICENSE|[A-Z]+\.md|docs\/([a-z]+\/)?([a-z-]+|README)\.md|docs\/images\/[a-z-]+\.(png|svg)|docs\/reference\/leasehold\.1|examples\/[a-z/-]+\.(mjs|md|json)|ops\/[a-zA-Z/@._-]+\.(yml|yaml|json|service|timer|tpl|txt)|ops\/docker\/(Dockerfile|\.dockerignore)|dist\/cli\/bundle\/LICENSES\.txt|dist\/cli\/(bundle\/[\w-]+|leasehold-guard)\.cjs|dist\/(?!sim\/)[^.][^:]*\.(js|d\.ts|css|html|svg|json))$/
  expect(paths.filter(path => !allowed.test(path) || /\.test\./.test(path))).toEqual([])
  expect(paths).toEqual(expect.arrayContaining(['package.json', 'LICENSE', 'README.md', 'CHANGELOG.md', 'SECURITY.md']))
  // The parts of the server and the command line are in its bundle, and nothing else loads them.
  expect(paths.filter(path => /^dist\/(server|face|mcp|guard|demo|cli\/command)\//.test(path))).toEqual([])
  // Links of the installed README.md work.
  const linked = readFileSync(`${root}/README.md`, 'utf8').matchAll(/\]\((?!https?:)([^)#]+)/g)
  expect([...linked].map(([, path]) => path!).filter(path => !paths.includes(path))).toEqual([])
})

test('every export and every bin points into the build', () => {
  const targets = Object.values(manifest.exports).flatMap(target => (typeof target === 'string' ? [target] : Object.values(target)))
  expect(targets.filter(target => !target.startsWith('./dist/') && target !== './package.json')).toEqual([])
  expect(Object.values(manifest.bin).filter(target => !target.startsWith('dist/'))).toEqual([])
})

test('the Node version in engines is new enough for every dependency', () => {
  const floor = manifest.engines.node
    .match(/^>=(\d+)\.(\d+)$/)!
    .slice(1)
    .map(Number) as [number, number]
  const tooNew = Object.entries(lock).filter(([path, { engines }]) => path !== '' && engines?.node && !admits(engines.node, floor))
  expect(tooNew.map(([path, { engines }]) => `${path} wants ${engines?.node}`)).toEqual([])
})

test('no dependency of a user needs an install script', async () => {
  const scripted = runtime.filter(([, { hasInstallScript }]) => hasInstallScript).map(([path]) => path)
  // It has one and works without it: our own install runs no scripts (scripts/build.mjs), so loading it here is the proof.
  expect(scripted.filter(path => path !== 'node_modules/@photostructure/sqlite')).toEqual([])
  const { DatabaseSync } = await import('@photostructure/sqlite')
  const database = new DatabaseSync(':memory:')
  expect(database.prepare('select 1 as one').get()).toEqual({ one: 1 })
  database.close()
  expect(existsSync(`${root}/node_modules/@photostructure/sqlite/build`)).toBe(false)
})

test('users of the library install no package for the server or the command line', () => {
  expect(manifest.dependencies ?? {}).toEqual({})
  expect(Object.keys(manifest.optionalDependencies ?? {})).toEqual(['@photostructure/sqlite'])
})

test('every driver is an optional peer dependency', () => {
  const peers = Object.keys(manifest.peerDependencies ?? {})
  expect(peers.filter(peer => manifest.peerDependenciesMeta?.[peer]?.optional !== true)).toEqual([])
})

test('tools are pinned, and the lockfile names no registry', () => {
  expect(Object.entries(manifest.devDependencies).filter(([, version]) => !/^\d+\.\d+\.\d+$/.test(version))).toEqual([])
  expect(Object.entries(lock).filter(([, { resolved }]) => resolved !== undefined)).toEqual([])
})

/** Whether `range` (the forms in use: `>=a`, `^a`, `a || b`, `>= a < b`, `*`) admits the version `floor`. */
function admits(range: string, floor: readonly [number, number]): boolean {
  return range.split('||').some(alternative =>
    [...alternative.matchAll(/(>=|<=|>|<|\^|~)?\s*v?(\d+)(?:\.(\d+))?(?:\.\d+)?/g)].every(([, sign, major, minor]) => {
      const [a, b] = [Number(major), Number(minor ?? 0)]
      const order = floor[0] - a || floor[1] - b
      if (sign === '>=' || sign === '>') return order >= 0
      if (sign === '<' || sign === '<=') return order < 0
      return floor[0] === a && order >= 0
    }),
  )
}
