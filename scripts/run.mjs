// Builds what is stale, then runs one file with the arguments that follow: `node scripts/run.mjs FILE ARGS…`

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { build, install, root, run, stale } from './build.mjs'

const [file, ...args] = process.argv.slice(2)
const ready = install() && (!stale() || build())
if (ready && !existsSync(join(root, file))) console.error(`${file} does not exist (yet)`)
process.exitCode = ready && existsSync(join(root, file)) && run(process.execPath, [join(root, file), ...args]) ? 0 : 1
