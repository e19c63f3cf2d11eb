// `npm start`: installs and builds what is missing or stale, then runs the server.

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { become, build, install, root, stale } from './build.mjs'

const server = 'dist/cli/leasehold.js'
const example = 'examples/takeover.mjs'

if (!install() || (stale() && !build())) process.exitCode = 1
else if (existsSync(join(root, server))) await become(server, ['serve', ...process.argv.slice(2)])
else {
  console.log('Leasehold: a lease service. This clone has no server yet; this is what its library does:\n')
  await become(example, [])
}
