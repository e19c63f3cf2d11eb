// `npm start`: installs and builds what is missing or stale, then serves the user's default store on port 7420 or the next free one, and prints the
// address of the web page.

import { buildStale, install, projectsFor, runHere } from './build.mjs'

const program = 'dist/cli/leasehold.js'
if (!install() || !buildStale(projectsFor(program))) process.exitCode = 1
else await runHere(program, ['serve', '--next-port', ...process.argv.slice(2)])
