/**
 * Lets the groups of `npm test` load the modules of `src/` as the build compiled them (`dist/`), by Node itself. Vitest would transform each module, send it to
 * each process and wrap its imports, which takes seconds of CPU for every process that loads the server, and slows what computes.
 *
 * If the build is older than the source, the source is loaded instead, so that no test judges old code. Modules without an output of their own (the dashboard)
 * are loaded from the source as well.
 */
import { existsSync } from 'node:fs'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Plugin } from 'vitest/config'
import { isBuildStale } from './fresh-build.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const dist = join(root, 'dist')

/** Modules that Node loads, for Vitest's `server.deps.external`. */
export const BUILT = /\/dist\/.*\.js$/

export function builtSource(): Plugin[] {
  if (isBuildStale()) {
    console.warn('dist/ is older than src/: the tests load the source, which takes longer. To avoid that, run: npm run build')
    return []
  }
  return [
    { name: 'built-source', enforce: 'pre', resolveId: (id, importer) => (importer === undefined ? null : builtModule(id, importer)) },
  ]
}

/** The output of the module of `src/` that `importer` means by `id`, or null. */
export function builtModule(id: string, importer: string): string | null {
  if (!/^\.{1,2}\/.*\.ts$/.test(id)) return null
  const path = relative(join(root, 'src'), resolve(dirname(importer), id))
  if (path.startsWith('..') || path.split(sep)[0] === 'dashboard') return null
  const output = join(dist, path.replace(/\.ts$/, '.js'))
  return existsSync(output) ? output : null
}
