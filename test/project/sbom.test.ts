/** The bills of materials (scripts/sbom.mjs): what they must list, and that they are CycloneDX. The bill of the image is compared with an image in test/ops/image.test.ts. */
import { execFile } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { cyclonedx } from '../support/client-sets.ts'
import { orSkip } from '../support/foreign-clients.ts'
import { requireFreshBuild } from '../support/fresh-build.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const json = (path: string) => JSON.parse(readFileSync(join(root, path), 'utf8'))

interface Component {
  readonly 'bom-ref': string
  readonly group?: string
  readonly name: string
  readonly version: string
  readonly scope?: string
  readonly hashes?: readonly { readonly alg: string; readonly content: string }[]
  readonly properties?: readonly { readonly name: string; readonly value: string }[]
}

interface Bill {
  readonly serialNumber: string
  readonly metadata: { readonly component: Component }
  readonly components: readonly Component[]
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[]
}

interface Locked {
  readonly version: string
  readonly license: string
  readonly integrity: string
  readonly dependencies?: Readonly<Record<string, string>>
}

interface Script {
  billsOf(given: {
    readonly manifest: object
    readonly lock: Readonly<Record<string, object>>
    readonly imageLock: Readonly<Record<string, object>>
    readonly base: object
    readonly inBundles: ReadonlyMap<string, readonly string[]>
  }): { readonly sbom: Bill; readonly image: Bill }
  imageBase(dockerfile: string): { readonly name: string; readonly tag: string; readonly digest: string }
}

const { billsOf, imageBase } = (await import(join(root, 'scripts/sbom.mjs'))) as Script
const nameOf = ({ group, name }: Component) => (group === undefined ? name : `${group}/${name}`)
const bundledIn = ({ properties = [] }: Component) => properties.map(({ value }) => value)

/** The packages that the source imports when it runs, by the bundle that they are in. */
function imported(): ReadonlySet<string> {
  const files = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' }).filter(path => /\.tsx?$/.test(path))
  return new Set(
    files.flatMap(path =>
      [
        ...readFileSync(join(root, 'src', path), 'utf8').matchAll(
          /^(?:import|export)\s+(?!type\b)[^'";]*?from\s+'((?:@[\w-]+\/)?[\w-]+)(?:\/[\w/.-]*)?'/gm,
        ),
      ].map(([, name]) => name!),
    ),
  )
}

test('the bill of the package lists every package that the source imports and users do not install, with its version and hash', () => {
  requireFreshBuild()
  const { packages } = json('package-lock.json') as { packages: Record<string, Locked> }
  const manifest = json('package.json') as { optionalDependencies: object; peerDependencies: object }
  const bill = json('dist/sbom.cdx.json') as Bill
  const contained = bill.components.filter(component => bundledIn(component).length > 0)
  const usersInstall = Object.keys({ ...manifest.optionalDependencies, ...manifest.peerDependencies })
  const wanted = [...imported()].filter(name => !usersInstall.includes(name))
  expect(wanted).toEqual(expect.arrayContaining(['commander', 'pino', 'prom-client', 'typebox', 'preact', 'uplot']))
  expect(wanted.filter(name => !contained.map(nameOf).includes(name))).toEqual([])
  for (const component of bill.components) {
    const locked = packages[`node_modules/${nameOf(component)}`]!
    expect(component.version).toBe(locked.version)
    const [{ alg, content }] = component.hashes as [{ alg: string; content: string }]
    expect([alg, Buffer.from(content, 'hex').toString('base64')]).toEqual(['SHA-512', locked.integrity.replace('sha512-', '')])
  }
  const optional = bill.components.filter(({ scope }) => scope === 'optional').map(nameOf)
  expect(optional).toEqual(['@photostructure/sqlite', 'node-addon-api', 'node-gyp-build'])
})

test('the licences of a bundle are those of the packages that the bill says are in it', () => {
  const bill = json('dist/sbom.cdx.json') as Bill
  for (const bundle of ['dist/cli/bundle', 'dist/dashboard']) {
    const licences = readFileSync(join(root, bundle, 'LICENSES.txt'), 'utf8')
    const named = [...licences.matchAll(/^(\S+) (\d+\.\d+\.\d+\S*) \([\w.-]+\)$/gm)].map(([, name, version]) => `${name} ${version}`)
    const listed = bill.components.filter(component => bundledIn(component).includes(bundle))
    expect(named.sort(), bundle).toEqual(listed.map(component => `${nameOf(component)} ${component.version}`).sort())
  }
})

test('both bills are valid CycloneDX, and a wrong field is found', async context => {
  const python = await orSkip('CycloneDX', cyclonedx(), context)
  const program = `
import json, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
for path in sys.argv[1:]:
    text = open(path).read()
    wrong = json.dumps({**json.loads(text), 'builtAt': 'today'})
    print([JsonStrictValidator(SchemaVersion.V1_6).validate_str(each) is None for each in (text, wrong)])`
  const paths = ['sbom', 'image'].map(name => join(root, `dist/${name}.cdx.json`))
  const { stdout } = await promisify(execFile)(python, ['-c', program, ...paths])
  expect(stdout).toBe('[True, False]\n[True, False]\n')
})

const locked = (version: string, dependencies = {}): Locked => {
  const integrity = `sha512-${Buffer.alloc(64, version).toString('base64')}`
  return { version, license: 'MIT', integrity, dependencies }
}
const given = {
  manifest: { name: 'leasehold', version: '1.2.3', license: 'Apache-2.0', optionalDependencies: { sqlite: '1' } },
  lock: {
    'node_modules/a': locked('1.0.0', { b: '2' }),
    'node_modules/b': locked('1.1.0'),
    'node_modules/a/node_modules/b': locked('2.0.0'),
    'node_modules/sqlite': locked('3.0.0', { b: '1' }),
  },
  imageLock: {
    '': { dependencies: { pg: '8' } },
    'node_modules/pg': locked('8.0.0', { xtend: '4' }),
    'node_modules/xtend': locked('4.0.0'),
  },
  base: { name: 'node', tag: '24', digest: '0'.repeat(64) },
}
const BUNDLES: readonly (readonly [string, readonly string[]])[] = [
  ['node_modules/a', ['dist/one', 'dist/two']],
  ['node_modules/a/node_modules/b', ['dist/one']],
]

test('the same content gives the same bill, whichever order the bundlers found it in, and another content another serial number', () => {
  const bill = billsOf({ ...given, inBundles: new Map(BUNDLES) })
  const reversed = BUNDLES.map(([path, bundles]) => [path, [...bundles].reverse()] as const).reverse()
  expect(JSON.stringify(billsOf({ ...given, inBundles: new Map(reversed) }))).toBe(JSON.stringify(bill))
  const other = billsOf({ ...given, inBundles: new Map(BUNDLES.slice(0, 1)) })
  expect(other.sbom.serialNumber).not.toBe(bill.sbom.serialNumber)
  expect(bill.sbom.serialNumber).not.toBe(bill.image.serialNumber)
})

test('two versions of a package are told apart, and each dependency is the version that Node would load', () => {
  const { sbom, image } = billsOf({ ...given, inBundles: new Map(BUNDLES) })
  expect(Object.fromEntries(sbom.dependencies.map(({ ref, dependsOn }) => [ref, dependsOn]))).toEqual({
    'pkg:npm/leasehold@1.2.3': ['pkg:npm/a@1.0.0', 'pkg:npm/b@2.0.0', 'pkg:npm/sqlite@3.0.0'],
    'pkg:npm/a@1.0.0': ['pkg:npm/b@2.0.0'],
    'pkg:npm/b@2.0.0': [],
    'pkg:npm/sqlite@3.0.0': ['pkg:npm/b@1.1.0'],
    'pkg:npm/b@1.1.0': [],
  })
  const [{ ref, dependsOn }] = image.dependencies as [{ ref: string; dependsOn: string[] }]
  expect([ref, dependsOn]).toEqual([
    'image:leasehold@1.2.3',
    [`image:node@${given.base.digest}`, 'pkg:npm/leasehold@1.2.3', 'pkg:npm/pg@8.0.0'],
  ])
  expect(image.components.map(nameOf)).not.toContain('sqlite')
})

test('the base of the image has a digest, and a Dockerfile without one is refused', () => {
  const dockerfile = readFileSync(join(root, 'ops/docker/Dockerfile'), 'utf8')
  expect(imageBase(dockerfile)).toMatchObject({ name: 'node', tag: '24-bookworm-slim' })
  expect(() => imageBase(dockerfile.replace(/@sha256:\w+/, ''))).toThrow(/no base with a digest: FROM node:24-bookworm-slim AS base/)
  expect(() => imageBase(dockerfile.replace(/@sha256:(\w+)/, '@sha256:latest'))).toThrow(/no base with a digest/)
  expect(() => imageBase(dockerfile.replace('FROM base\n', 'FROM node:24\n'))).toThrow(/a second base: FROM node:24/)
})
