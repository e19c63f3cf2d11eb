// Builds what is stale, then becomes one file with the arguments that follow: `node scripts/run.mjs FILE ARGS…`

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { become, build, install, projectsFor, root, stale } from './build.mjs'

const [file, ...args] = process.argv.slice(2)
const projects = projectsFor(file)
if (!install() || (stale(projects) && !build(projects))) process.exitCode = 1
else if (existsSync(join(root, file))) await become(file, args)
else {
  console.error(`${file} does not exist`)
  process.exitCode = 1
}
