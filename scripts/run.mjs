// Builds what is stale, then runs a file with the arguments that follow: `node scripts/run.mjs FILE ARGS…`

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { buildStale, install, projectsFor, root, runHere } from './build.mjs'

const [file, ...args] = process.argv.slice(2)
if (!install() || !buildStale(projectsFor(file))) process.exitCode = 1
else if (existsSync(join(root, file))) await runHere(file, args)
else {
  console.error(`${file} does not exist`)
  process.exitCode = 1
}
