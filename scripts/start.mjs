// `npm start`: installs and builds what is missing or stale, then serves the user's own store on port 7420 or the next free one, and prints
// the address of the page.

import { become, build, install, projectsFor, stale } from './build.mjs'

/** Announced, because it takes a while. */
function built() {
  const projects = projectsFor('dist/cli/leasehold.js')
  if (!stale(projects)) return true
  console.log('building')
  return build(projects)
}

if (!install() || !built()) process.exitCode = 1
else await become('dist/cli/leasehold.js', ['serve', '--next-port', ...process.argv.slice(2)])
