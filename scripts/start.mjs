// `npm start`: installs and builds what is missing or stale, then serves the user's default store on port 7420 or the next free one, and prints the
// address of the web page. `npm start -- --demo` serves a lively little world in memory instead.

import { buildStale, install, projectsFor, runHere } from './build.mjs'

const program = 'dist/cli/leasehold.js'
if (!install() || !buildStale(projectsFor(program))) process.exitCode = 1
else {
  const args = process.argv.slice(2)
  const demo = args.includes('--demo')
  await runHere(program, demo ? ['demo', ...args.filter(arg => arg !== '--demo')] : ['serve', '--next-port', ...args])
}
