// Bundles the command line: `dist/cli/leasehold.js` and its parts in `dist/cli/bundle/`, from what the compiler made of `src/cli/main.ts`.
// A started process must be quick (a hook runs on every edit, `leasehold run` in every cron job), and Node takes longer to find and load two hundred
// small modules than to run them. The library is not bundled.
//
// The packages that only the command line and the server use are in the bundle, so that users of the library do not install them. Their licences are in
// `dist/cli/bundle/LICENSES.txt`. Optional packages, which users install themselves, stay outside.

import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rolldown } from 'rolldown'

const GUARD = /^(cli\/guard-process|guard\/(hook-answer|hook-event|patch-paths|host-process|token-file)|agent\/repository)\.js$/
/** What `run`, `elect` and the commands that look at leases need on a file or a server, in one part. */
const CORE =
  /^((kernel|holder|replica|connect|recipe|registry|learn|lessor|wire\/resp)\/|store\/(?!.*\/(certification|driver|gateway))|[a-z-]+\.js$|cli\/(process\/|[a-z-]+\.js$))/
const OTHER_STORES = /^(store\/(postgres|redis|etcd)\/(?!module\.js$)|testing\/)/

/** Which package a module belongs to, by its path. */
const PACKAGE = /^(.*\/node_modules\/((?:@[^/]+\/)?[^/]+))\//

async function bundleCommandLine(dist) {
  const inDist = id => relative(dist, id).split(sep).join('/')
  const { optionalDependencies, peerDependencies } = JSON.parse(readFileSync(join(dist, '../package.json'), 'utf8'))
  const optional = Object.keys({ ...optionalDependencies, ...peerDependencies })
  const isOptional = id => optional.some(name => id === name || id.startsWith(`${name}/`))
  /** Folders of the packages in the bundle, by name. */
  const packages = new Map()
  const folder = join(dist, 'cli', 'bundle')
  rmSync(folder, { recursive: true, force: true })
  const bundle = await rolldown({
    input: { leasehold: join(dist, 'cli', 'main.js') },
    platform: 'node',
    // A package in the bundle may need an optional one for itself: then that is in the bundle as well.
    external: (id, importer) => id.startsWith('node:') || (isOptional(id) && !PACKAGE.test(importer ?? '')),
    // Our own modules are kept whole. Packages leave out what is not used.
    treeshake: { moduleSideEffects: id => !PACKAGE.test(id) || !id.includes('/typebox/') },
    // Some modules are loaded late by one command and at once by another. That is known.
    onLog: (level, { code, message }) => {
      if (code !== 'INEFFECTIVE_DYNAMIC_IMPORT') console.error(`${level}: ${message}`)
    },
    plugins: [
      {
        // A module that looks for files beside itself (workers, the page, package.json) finds them where the compiler put it.
        name: 'module-addresses',
        transform: (code, id) =>
          !PACKAGE.test(id) &&
          code.includes('import.meta.url') && id !== join(dist, 'cli', 'main.js')
            ? { code: code.replaceAll('import.meta.url', `new URL(${JSON.stringify(`../../${inDist(id)}`)}, import.meta.url).href`) }
            : null,
      },
      {
        name: 'packages',
        moduleParsed: ({ id }) => {
          const [, path, name] = PACKAGE.exec(id) ?? []
          if (name !== undefined) packages.set(name, path)
        },
      },
    ],
  })
  await bundle.write({
    dir: join(dist, 'cli'),
    format: 'esm',
    comments: false,
    entryFileNames: '[name].js',
    chunkFileNames: 'bundle/[name].js',
    codeSplitting: {
      groups: [
        { name: 'guard', priority: 2, test: id => GUARD.test(inDist(id)) },
        { name: 'core', priority: 1, test: id => CORE.test(inDist(id)) && !OTHER_STORES.test(inDist(id)) && inDist(id) !== 'cli/main.js' },
        { name: 'core', priority: 1, test: /\/node_modules\/commander\// },
      ],
    },
  })
  await bundle.close()
  writeFileSync(join(folder, 'LICENSES.txt'), licences(packages))
}

/** The name, version and licence of each package in the bundle, as the licences require. */
function licences(packages) {
  const texts = [...packages].sort().map(([name, path]) => {
    const { version, license } = JSON.parse(readFileSync(join(path, 'package.json'), 'utf8'))
    const file = readdirSync(path).find(entry => /^licen[cs]e/i.test(entry))
    if (file === undefined) throw new Error(`${name} has no licence in ${path}: the bundle must not contain it`)
    return `${name} ${version} (${license})\n\n${readFileSync(join(path, file), 'utf8').trim()}\n`
  })
  return `The command line and the server contain these packages.\n\n${texts.join(`\n${'-'.repeat(80)}\n\n`)}`
}

await bundleCommandLine(fileURLToPath(new URL('../dist', import.meta.url)))
