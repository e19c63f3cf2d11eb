// Bundles the command line: `dist/cli/leasehold.js` and its parts in `dist/cli/bundle/`, from what the compiler made of `src/cli/main.ts`.
// A started process must be quick (a hook runs on every edit, `leasehold run` in every cron job), and Node takes longer to find and load two hundred
// small modules than to run them. Packages stay outside of the bundle. The library is not bundled.

import { rmSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rolldown } from 'rolldown'

const GUARD = /^(cli\/guard-process|guard\/(hook-answer|hook-event|patch-paths|host-process|token-file)|agent\/repository)\.js$/
/** What `run`, `elect` and the commands that look at leases need on a file or a server, in one part. */
const CORE =
  /^((kernel|holder|replica|connect|recipe|registry|learn|lessor|wire\/resp)\/|store\/(?!.*\/(certification|driver|gateway))|[a-z-]+\.js$|cli\/(process\/|[a-z-]+\.js$))/
const OTHER_STORES = /^(store\/(postgres|redis|etcd)\/(?!module\.js$)|testing\/)/

/** The thread of a file store, in one file: it starts in every command on a file. */
const FILE_WORKER = 'cli/bundle/file-worker.js'

async function bundleCommandLine(dist) {
  const inDist = id => relative(dist, id).split(sep).join('/')
  const folder = join(dist, 'cli', 'bundle')
  rmSync(folder, { recursive: true, force: true })
  const options = {
    platform: 'node',
    external: id => !id.startsWith('.') && !id.startsWith(dist),
    treeshake: false,
    // Some modules are loaded late by one command and at once by another. That is known.
    onLog: (level, { code, message }) => {
      if (code !== 'INEFFECTIVE_DYNAMIC_IMPORT') console.error(`${level}: ${message}`)
    },
    plugins: [
      {
        // A module that looks for files beside itself (workers, the page, package.json) finds them where the compiler put it.
        name: 'module-addresses',
        transform: (code, id) => {
          if (!code.includes('import.meta.url') || id === join(dist, 'cli', 'main.js')) return null
          const own = inDist(id) === 'store/file/file.js' ? code.replace("'./worker.js'", JSON.stringify(`../../${FILE_WORKER}`)) : code
          if (inDist(id) === 'store/file/file.js' && own === code) throw new Error('the file store names its worker in another way now')
          return { code: own.replaceAll('import.meta.url', `new URL(${JSON.stringify(`../../${inDist(id)}`)}, import.meta.url).href`) }
        },
      },
    ],
  }
  const worker = await rolldown({ ...options, input: join(dist, 'store', 'file', 'worker.js') })
  await worker.write({ file: join(dist, FILE_WORKER), format: 'esm', comments: false, codeSplitting: false })
  await worker.close()
  const bundle = await rolldown({ ...options, input: { leasehold: join(dist, 'cli', 'main.js') } })
  await bundle.write({
    dir: join(dist, 'cli'),
    format: 'esm',
    comments: false,
    // Names stay as they are, for stack traces. Without spaces there is a third less to read and to parse at each start.
    minify: { compress: false, mangle: false, codegen: { removeWhitespace: true } },
    entryFileNames: '[name].js',
    chunkFileNames: 'bundle/[name].js',
    codeSplitting: {
      groups: [
        { name: 'guard', priority: 2, test: id => GUARD.test(inDist(id)) },
        { name: 'core', priority: 1, test: id => CORE.test(inDist(id)) && !OTHER_STORES.test(inDist(id)) && inDist(id) !== 'cli/main.js' },
      ],
    },
  })
  await bundle.close()
}

await bundleCommandLine(fileURLToPath(new URL('../dist', import.meta.url)))
