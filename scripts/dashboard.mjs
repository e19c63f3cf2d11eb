// Bundles the program and the style sheet of the dashboard into dist/dashboard/page.js and page.css. Part of scripts/bundle.mjs.

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'vite'
import { licences, packagesIn } from './bundled-packages.mjs'

const root = fileURLToPath(new URL('../src/dashboard', import.meta.url))
const dist = fileURLToPath(new URL('../dist/dashboard', import.meta.url))

/** Returns the folders of the packages that are inside. */
export async function bundleDashboard() {
  const packages = new Set()
  await build({
    root,
    configFile: false,
    plugins: [packagesIn(packages)],
    logLevel: 'warn',
    oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
    build: {
      outDir: dist,
      emptyOutDir: false, // it has the copied files
      target: 'es2022',
      modulePreload: false, // it would insert a script of its own
      cssCodeSplit: false,
      rolldownOptions: {
        input: `${root}/page.tsx`,
        // The names never change: the server has a route for each file.
        output: { entryFileNames: 'page.js', assetFileNames: 'page[extname]', codeSplitting: false },
      },
    },
  })
  writeFileSync(join(dist, 'LICENSES.txt'), licences('The page contains these packages.', packages))
  return packages
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await bundleDashboard()
