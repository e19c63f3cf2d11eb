// Bundles the program and the style sheet of the dashboard into dist/dashboard/page.js and page.css. Part of `npm run build`.

import { fileURLToPath } from 'node:url'
import { build } from 'vite'

const root = fileURLToPath(new URL('../src/dashboard', import.meta.url))

await build({
  root,
  configFile: false,
  logLevel: 'warn',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    outDir: fileURLToPath(new URL('../dist/dashboard', import.meta.url)),
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
