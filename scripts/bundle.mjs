// Bundles what the compiler made. A started process must be quick (a hook runs on every edit, `leasehold run` in every cron job), and so must the import of
// the library: Node takes longer to find and load two hundred small modules than to run them.
//
// - `dist/cli/leasehold.js` and its parts in `dist/cli/bundle/`: the command line and the server. The packages that only they use are inside, so that users of
//   the library do not install them. Their licences are in `dist/cli/bundle/LICENSES.txt`.
// - `dist/library/`: every entry of the package, with common parts, and the files that are started by their address (workers, a child process).
// - `dist/dashboard/`: the program and the style sheet of the page, by scripts/dashboard.mjs, with the licences of what is in them.
//
// Which packages are inside is in the bills of materials (scripts/sbom.mjs).
//
// Optional packages, which users install themselves, stay outside.

import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rolldown } from 'rolldown'
import { licences, PACKAGE, packagesIn } from './bundled-packages.mjs'
import { bundleDashboard } from './dashboard.mjs'
import { exportTargets, STARTED, staticImports } from './packed-files.mjs'
import { writeBills } from './sbom.mjs'

const GUARD = /^(cli\/guard-(process|flags)|guard\/(hook-answer|hook-event|patch-paths|host-process|token-file)|agent\/repository)\.js$/
/** All modules that `leasehold run` loads for a lease in a file are one part. */
const CORE = ['cli/program.js', 'cli/command/run.js', 'replica/replica.js', 'store/file/file.js']

/** Imports what is not in the bundle. Such a module cannot be in the part whose compiled code is kept (src/cli/compiled-code.ts). */
const OUTSIDE_IMPORT = /\bimport\((?!['"]\.)/

/** As the compiler writes `import(name)`. */
const OPTIONAL_IMPORT = 'import(__rewriteRelativeImportExtension(name))'

/** Bundles `input` into `dist`. `into` is the folder of the parts. Returns the folders of the packages that are inside. */
async function bundle(dist, input, { into, platform, output }) {
  const inDist = id => relative(dist, id).split(sep).join('/')
  const { optionalDependencies, peerDependencies } = JSON.parse(readFileSync(join(dist, '../package.json'), 'utf8'))
  const optional = Object.keys({ ...optionalDependencies, ...peerDependencies })
  const isOptional = id => optional.some(name => id === name || id.startsWith(`${name}/`))
  const packages = new Set()
  const bundled = await rolldown({
    experimental: { attachDebugInfo: 'none' }, // no comments with the names of files: a hundred kilobytes
    input,
    platform,
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
        // A module that looks for files beside itself finds them where the compiler put them (the page, package.json), or where they were bundled (workers).
        name: 'module-addresses',
        transform: (code, id) => {
          if (PACKAGE.test(id) || !code.includes('import.meta.url') || inDist(id) === 'cli/compiled-code.js') return null
          const address = Object.values(STARTED).includes(inDist(id)) ? `library/${inDist(id)}` : inDist(id)
          const up = relative(into, '.').split(sep).join('/')
          // Not `new URL('…', import.meta.url)`, which webpack and Vite take for a file to copy. In CommonJS that bundlers make, there is no address.
          const moved = `((from) => from && new URL(${JSON.stringify(`${up}/${address}`)}, from).href)(import.meta.url)`
          return { code: code.replaceAll('import.meta.url', moved) }
        },
      },
      packagesIn(packages),
    ],
  })
  const options = output(inDist)
  const { output: written } = await bundled.write({ format: 'esm', comments: false, ...options })
  // The SQLite package may be missing, and is imported by its name in a variable. Without the comment, webpack puts an error in the place of that import.
  for (const { fileName, code } of written)
    if (code?.includes(OPTIONAL_IMPORT))
      writeFileSync(join(options.dir, fileName), code.replaceAll(OPTIONAL_IMPORT, 'import(/* webpackIgnore: true */ name)'))
  await bundled.close()
  return packages
}

/** The parts are in CommonJS: Node has no way to keep the compiled code of other modules from one start to the next, before 22.1. */
async function bundleCommandLine(dist) {
  const core = new Set(CORE.flatMap(file => [...staticImports(dist, file)]))
  const outside = new Set([...core].filter(file => OUTSIDE_IMPORT.test(readFileSync(join(dist, file), 'utf8'))))
  const main = readFileSync(join(dist, 'cli/main.js'), 'utf8')
  const started = [...main.matchAll(/import\('\.\/(.+?)\.js'\)/g)].map(([, name]) => name)
  rmSync(join(dist, 'cli/bundle'), { recursive: true, force: true })
  const packages = await bundle(dist, Object.fromEntries(started.map(name => [name, join(dist, 'cli', `${name}.js`)])), {
    into: 'cli/bundle',
    platform: 'node',
    output: inDist => ({
      dir: join(dist, 'cli/bundle'),
      format: 'cjs',
      entryFileNames: '[name].cjs',
      chunkFileNames: '[name].cjs',
      codeSplitting: {
        groups: [
          { name: 'outside', priority: 3, test: id => outside.has(inDist(id)) },
          { name: 'guard', priority: 2, test: id => GUARD.test(inDist(id)) },
          { name: 'core', priority: 1, test: id => core.has(inDist(id)) || id.includes('/node_modules/commander/') },
        ],
      },
    }),
  })
  writeFileSync(join(dist, 'cli/leasehold.js'), main.replaceAll(/import\('\.\/(.+?)\.js'\)/g, "import('./bundle/$1.cjs')"))
  writeFileSync(join(dist, 'cli/bundle/LICENSES.txt'), licences('The command line and the server contain these packages.', packages))
  return packages
}

/** The hook: one file, in CommonJS, which Node starts sooner. */
async function bundleGuard(dist) {
  return bundle(
    dist,
    { 'leasehold-guard': join(dist, 'cli', 'guard-fast.js') },
    {
      into: 'cli',
      platform: 'node',
      output: () => ({ dir: join(dist, 'cli'), format: 'cjs', entryFileNames: '[name].cjs', banner: '#!/usr/bin/env node' }),
    },
  )
}

async function bundleLibrary(dist) {
  rmSync(join(dist, 'library'), { recursive: true, force: true })
  const manifest = JSON.parse(readFileSync(join(dist, '../package.json'), 'utf8'))
  const entries = exportTargets(join(dist, '..'), manifest, ['types']).map(path => relative('dist', path).replace(/\.d\.ts$/, ''))
  const web = staticImports(dist, 'wire/http/client.js')
  const core = staticImports(dist, 'index.js')
  const replica = staticImports(dist, 'replica/replica.js')
  const inputs = files => Object.fromEntries(files.map(path => [path, join(dist, `${path}.js`)]))
  const started = Object.keys(STARTED).map(path => path.replace(/\.js$/, ''))
  const packages = await bundle(dist, inputs([...entries, ...started]), {
    into: 'library/part',
    platform: 'neutral', // `leasehold/http` runs in browsers
    output: inDist => ({
      dir: join(dist, 'library'),
      entryFileNames: '[name].js',
      chunkFileNames: 'part/[name].js',
      // What `import 'leasehold'` loads is two files, one of them for browsers too, and what a replica needs in addition another.
      codeSplitting: {
        groups: [
          { name: 'web', priority: 3, test: id => web.has(inDist(id)) },
          { name: 'core', priority: 2, test: id => core.has(inDist(id)) },
          { name: 'replica', priority: 1, test: id => replica.has(inDist(id)) },
        ],
      },
    }),
  })
  if (packages.size > 0) throw new Error(`the library uses ${[...packages].join(', ')}: make it an optional peer dependency, or do without`)
}

const dist = fileURLToPath(new URL('../dist', import.meta.url))
const [commandLine, guard, dashboard] = await Promise.all([
  bundleCommandLine(dist),
  bundleGuard(dist),
  bundleDashboard(),
  bundleLibrary(dist),
])
writeBills(join(dist, '..'), { 'dist/cli/bundle': commandLine, 'dist/cli/leasehold-guard.cjs': guard, 'dist/dashboard': dashboard })
