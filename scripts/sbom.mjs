// The bills of materials, in CycloneDX JSON: `dist/sbom.cdx.json` lists what the package contains and installs, `dist/image.cdx.json` what the image of
// ops/docker contains. The build writes them from what the bundlers took in, the two lockfiles and the Dockerfile.
//
// The same inputs give the same bytes, so that a reviewer can build the package again and compare: there is no time of the build, and the serial number is made of
// the content. A hash is that of the archive which npm installed, as the lockfile has it. The packages of the image's base are listed by the bill that its
// publisher attaches to it.

import { createHash } from 'node:crypto'
import { readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { join, relative, sep } from 'node:path'

/** The base of the image: its tag, and the digest that the tag had when it was chosen. */
const BASE = /^FROM (?<name>[\w./-]+):(?<tag>[\w.-]+)@sha256:(?<digest>[0-9a-f]{64})(?: AS \w+)?$/

/** The base that the first stage of a Dockerfile names. Throws unless it has a digest and is the base of every other stage. */
export function imageBase(dockerfile) {
  const stages = dockerfile.split('\n').filter(line => line.startsWith('FROM '))
  const found = BASE.exec(stages[0] ?? '')
  if (found === null) throw new Error(`the Dockerfile names no base with a digest: ${stages[0]}. Write FROM NAME:TAG@sha256:DIGEST AS base`)
  const foreign = stages.slice(1).find(line => !/^FROM base(?: AS \w+)?$/.test(line))
  if (foreign !== undefined) throw new Error(`the Dockerfile has a second base: ${foreign}. Write FROM base`)
  return found.groups
}

/** Writes both bills into `dist`. `bundled` has the folders of the packages in each bundle, by the path of the bundle. */
export function writeBills(root, bundled) {
  const json = path => JSON.parse(readFileSync(join(root, path), 'utf8'))
  const modules = realpathSync(join(root, 'node_modules'))
  const inBundles = new Map()
  for (const [bundle, folders] of Object.entries(bundled))
    for (const folder of folders) {
      const path = `node_modules/${relative(modules, folder).split(sep).join('/')}`
      inBundles.set(path, [...(inBundles.get(path) ?? []), bundle])
    }
  const bills = billsOf({
    manifest: json('package.json'),
    lock: json('package-lock.json').packages,
    imageLock: json('ops/docker/package-lock.json').packages,
    base: imageBase(readFileSync(join(root, 'ops/docker/Dockerfile'), 'utf8')),
    inBundles,
  })
  for (const [name, bill] of Object.entries(bills))
    writeFileSync(join(root, 'dist', `${name}.cdx.json`), `${JSON.stringify(bill, null, 1)}\n`)
}

/** The bills as objects. `inBundles` has the bundles that contain a package, by its path in the lockfile. */
export function billsOf({ manifest, lock, imageLock, base, inBundles }) {
  const optional = closure(lock, '', Object.keys(manifest.optionalDependencies))
  const contained = packagesAt(lock, [...inBundles.keys()], path => ({
    scope: 'required',
    properties: [...inBundles.get(path)].sort().map(value => ({ name: 'leasehold:bundled-in', value })),
  }))
  const installed = packagesAt(lock, optional, () => ({ scope: 'optional' }))
  const drivers = closure(imageLock, '', Object.keys(imageLock[''].dependencies))
  const self = { ...component(manifest.name, manifest), type: 'application', description: manifest.description }
  const image = {
    type: 'container',
    'bom-ref': `image:${manifest.name}@${manifest.version}`,
    name: manifest.name,
    version: manifest.version,
  }
  const baseImage = {
    ...{ type: 'container', 'bom-ref': `image:${base.name}@${base.digest}`, name: base.name, version: base.tag },
    ...{ scope: 'required', hashes: [{ alg: 'SHA-256', content: base.digest }] },
    purl: `pkg:oci/${base.name.split('/').at(-1)}@sha256%3A${base.digest}?tag=${base.tag}`,
  }
  const inside = [...inBundles.keys()]
  const selfDependsOn = paths => ({ ref: self['bom-ref'], dependsOn: references(lock, paths) })
  return {
    sbom: bill(
      self,
      [...contained, ...installed],
      [
        selfDependsOn([...inside, ...direct(lock, '', Object.keys(manifest.optionalDependencies))]),
        ...edges(lock, [...inside, ...optional]),
      ],
    ),
    image: bill(
      image,
      [baseImage, { ...self, scope: 'required' }, ...contained, ...packagesAt(imageLock, drivers, () => ({ scope: 'required' }))],
      [
        {
          ref: image['bom-ref'],
          dependsOn: [
            baseImage['bom-ref'],
            self['bom-ref'],
            ...references(imageLock, direct(imageLock, '', Object.keys(imageLock[''].dependencies))),
          ],
        },
        selfDependsOn(inside),
        ...edges(lock, inside),
        ...edges(imageLock, drivers),
      ],
    ),
  }
}

function bill(subject, components, dependencies) {
  const unique = [...new Map(components.map(each => [each['bom-ref'], each])).values()]
  const edgesByRef = new Map(dependencies.map(each => [each.ref, { ref: each.ref, dependsOn: [...new Set(each.dependsOn)].sort() }]))
  const byRef = (a, b) => (a < b ? -1 : 1)
  const content = {
    metadata: { lifecycles: [{ phase: 'build' }], component: subject },
    components: unique.sort((a, b) => byRef(a['bom-ref'], b['bom-ref'])),
    dependencies: [...edgesByRef.values()].sort((a, b) => byRef(a.ref, b.ref)),
  }
  const hex = createHash('sha256').update(JSON.stringify(content)).digest('hex')
  // Version 8 of a UUID: its bits mean what its maker says.
  const uuid = `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`
  return { bomFormat: 'CycloneDX', specVersion: '1.6', serialNumber: `urn:uuid:${uuid}`, version: 1, ...content }
}

function component(name, { version, license, integrity }) {
  const [group, short] = name.startsWith('@') ? name.split('/') : [undefined, name]
  const purl = `pkg:npm/${group === undefined ? '' : `${group.replace('@', '%40')}/`}${short}@${version}`
  if (license === undefined) throw new Error(`${name} ${version} names no licence in the lockfile`)
  return {
    ...{ type: 'library', 'bom-ref': purl, ...(group !== undefined && { group }), name: short, version },
    ...(integrity !== undefined && { hashes: [{ alg: 'SHA-512', content: hexOf(integrity) }] }),
    licenses: [/[ ()]/.test(license) ? { expression: license } : { license: { id: license } }],
    purl,
  }
}

function packagesAt(lock, paths, more) {
  return paths.map(path => {
    if (lock[path] === undefined) throw new Error(`${path} is not in the lockfile`)
    return { ...component(nameOf(path), lock[path]), ...more(path) }
  })
}

/** `sha512-` and base64, as lockfiles have it. */
function hexOf(integrity) {
  if (!/^sha512-[A-Za-z0-9+/]{86}==$/.test(integrity)) throw new Error(`${integrity} is no SHA-512`)
  return Buffer.from(integrity.slice('sha512-'.length), 'base64').toString('hex')
}

function nameOf(path) {
  return path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)
}

/** Where the package at `from` finds these packages: beside it, or in a folder above. Those that are not installed are left out. */
function direct(lock, from, names) {
  return names.flatMap(name => {
    for (let at = from; ; at = at.slice(0, Math.max(0, at.lastIndexOf('/node_modules/')))) {
      const path = `${at === '' ? '' : `${at}/`}node_modules/${name}`
      if (lock[path] !== undefined) return [path]
      if (at === '') return []
    }
  })
}

/** The packages that these names stand for, and all that they depend on, without optional packages. */
function closure(lock, from, names) {
  const paths = new Set()
  const open = direct(lock, from, names)
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    if (paths.has(path)) continue
    paths.add(path)
    open.push(...direct(lock, path, Object.keys(lock[path].dependencies ?? {})))
  }
  return [...paths]
}

function references(lock, paths) {
  return paths.map(path => component(nameOf(path), lock[path])['bom-ref'])
}

/** For each of these packages, which of the others it needs. */
function edges(lock, paths) {
  const known = new Set(paths)
  return paths.map(path => ({
    ref: references(lock, [path])[0],
    dependsOn: references(
      lock,
      direct(lock, path, Object.keys(lock[path].dependencies ?? {})).filter(to => known.has(to)),
    ),
  }))
}
