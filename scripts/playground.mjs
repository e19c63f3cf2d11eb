// Bundles the playground (playground/) into a folder: a page, a script and a style sheet that work without a server and load nothing. Part of `npm run docs`.
//
// The package runs in the page as it is; playground/browser/node-builtins.ts stands for the modules of Node.

import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'vite'
import { root } from './build.mjs'

export async function buildPlayground(folder) {
  await build({
    root: join(root, 'playground'),
    configFile: false,
    logLevel: 'warn',
    oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
    resolve: { alias: [{ find: /^node:.*/, replacement: join(root, 'playground/browser/node-builtins.ts') }] },
    build: {
      outDir: folder,
      emptyOutDir: true,
      target: 'es2022',
      modulePreload: false,
      cssCodeSplit: false,
      rolldownOptions: {
        input: join(root, 'playground/view/main.tsx'),
        // A page that is opened as a file may not load modules.
        output: { format: 'iife', entryFileNames: 'playground.js', assetFileNames: 'playground[extname]', codeSplitting: false },
      },
    },
  })
  copyFileSync(join(root, 'playground/index.html'), join(folder, 'index.html'))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildPlayground(process.argv[2] ?? join(root, '.site/html/playground'))
