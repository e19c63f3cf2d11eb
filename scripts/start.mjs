// `npm start`: installs and builds what is missing or stale, then serves the user's default store on port 7420 or the next free one, and prints the
// address of the web page. `npm start -- --demo` serves a lively little world in memory instead. Options of `leasehold serve` (or `demo`) may follow:
// `npm start -- --port 8200`. They are checked first: in a fresh clone, installing and building takes a minute.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { buildStale, install, projectsFor, root, runHere } from './build.mjs'

const program = 'dist/cli/leasehold.js'
const EXIT_USAGE = 64

const given = process.argv.slice(2)
const demo = given.includes('--demo')
const command = demo ? 'demo' : 'serve'
const args = given.filter(arg => arg !== '--demo')
const help = helpOf(command)
const mistake = mistakeIn(args, optionsOf(help))

if (args.some(arg => arg === '--help' || arg === '-h')) console.log(`npm start -- [--demo] [options]\n\n${help}`)
else if (mistake !== undefined) {
  console.error(`npm start: ${mistake}`)
  process.exitCode = EXIT_USAGE
} else if (!install() || !buildStale(projectsFor(program))) process.exitCode = 1
else {
  const chosen = args.some(arg => /^--(port|listen|socket)(=|$)/.test(arg))
  await runHere(program, [command, ...(demo || chosen ? [] : ['--next-port']), ...args])
}

/** The help text of a command. Without a build it is in the reference, which is written from the program. */
function helpOf(name) {
  const page = readFileSync(join(root, 'docs/reference/command-line.md'), 'utf8')
  return page
    .split(`## leasehold ${name}\n`)[1]
    .split('```')[1]
    .replace(/^text\n/, '')
}

/** The options of a help text, and whether each takes a value. */
function optionsOf(text) {
  return new Map([...text.matchAll(/^ {2}(?:-\w, )?(--[\w-]+)( <\w+>)?/gm)].map(([, name, value]) => [name, value !== undefined]))
}

/** Returns what is wrong with the words, or undefined. The program checks the values itself, except a port, which is tried most often. */
function mistakeIn(words, options) {
  for (let i = 0; i < words.length; i++) {
    const [name, inline] = words[i].split(/=(.*)/s)
    const list = `Its options are ${[...options.keys(), '--demo'].join(', ')}.`
    if (/^\d+$/.test(words[i])) return `${words[i]} is not an option. Write: npm start -- --port ${words[i]}`
    if (!options.has(name) && name !== '-h') return `there is no option ${name}. ${list}`
    if (!options.get(name)) continue
    const value = inline ?? words[++i]
    if (value === undefined || (inline === undefined && value.startsWith('--'))) return `${name} needs a value.`
    if (name === '--port' && !(/^\d+$/.test(value) && Number(value) < 65_536))
      return `--port is a number from 0 to 65535, not ${value}. Write, for example: npm start -- --port 8200`
  }
  return undefined
}
