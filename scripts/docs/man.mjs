// The manual page leasehold(1), written from the built program: its commands with their options, examples, and the exit codes of docs/command-line.md.
// `npm run docs:reference` writes it together with the reference, and a test fails when the committed page differs.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { root } from '../build.mjs'

/** The variables that users set. docs/reference/settings.md has all of them. */
const ENVIRONMENT = [
  ['LEASEHOLD_URL', 'The store or server, if --store is not given.'],
  ['LEASEHOLD_API_KEY', 'The key for a server. It has no option, because other users of the machine can read those.'],
  ['LEASEHOLD_HOLDER', 'The name that others see, if --holder is not given. Default: host:pid.'],
  ['LEASEHOLD_AGENT', 'The name of a coding agent, for mcp and guard.'],
  ['LEASEHOLD_DEBUG', 'Errors are printed with their stack.'],
  ['NO_COLOR', 'No colours.'],
  ['XDG_STATE_HOME', 'The default file is leasehold/leasehold.db in this folder, or in ~/.local/state.'],
]

/** `program`: the command of the whole program. `examples`: those of each command, by its words. */
export function manPage(program, examples) {
  const all = subcommands(program).filter(command => command.name() !== 'help')
  return [
    `.\\" Written by npm run docs:reference from the program. Change the program, not this page.`,
    `.TH LEASEHOLD 1 "" "leasehold ${program.version()}" "Leasehold"`,
    '.SH NAME',
    `leasehold \\- ${text(lowerFirst(program.description().replace(/\.$/, '')))}`,
    '.SH SYNOPSIS',
    '.B leasehold',
    `.RI [ options ]`,
    '.I command',
    `.RI [ arguments ]`,
    '.SH DESCRIPTION',
    paragraph(
      'Leasehold grants leases: the right to use a named resource for a limited time, renewed while the holder lives and passed on when it dies. The commands use a file of the user, or the store or server that --store names.',
    ),
    '.SS Options of every command',
    ...optionsOf(program),
    '.SH COMMANDS',
    ...all.flatMap(command => describeCommand(command, examples)),
    '.SH EXIT STATUS',
    ...exitCodes().flatMap(([code, meaning]) => ['.TP', `.B ${text(code)}`, text(meaning)]),
    '.SH ENVIRONMENT',
    ...ENVIRONMENT.flatMap(([name, meaning]) => ['.TP', `.B ${text(name)}`, text(meaning)]),
    '.SH SEE ALSO',
    paragraph('The documentation is in the folder docs of the package; docs/README.md lists its pages.'),
    '',
  ].join('\n')
}

function subcommands(command) {
  return command.commands.flatMap(child => [child, ...subcommands(child)])
}

function wordsOf(command) {
  return command.parent === null ? [] : [...wordsOf(command.parent), command.name()]
}

function describeCommand(command, examples) {
  const words = wordsOf(command).join(' ')
  const lines = examples[words] ?? []
  return [
    `.SS ${text(`${words} ${command.usage()}`)}`,
    paragraph(command.description() || command.summary()),
    ...optionsOf(command),
    ...(lines.length === 0 ? [] : ['.PP', 'Examples:', '.PP', '.nf', '.RS', ...lines.map(text), '.RE', '.fi']),
  ]
}

/** Without those of the group or program that the command belongs to. */
function optionsOf(command) {
  const help = command.createHelp()
  const general = command.parent === null ? [] : ['--help', ...command.parent.options.map(({ long }) => long)]
  const options = help.visibleOptions(command).filter(({ long }) => !general.includes(long))
  return options.flatMap(option => ['.TP', `.B ${text(option.flags)}`, text(help.optionDescription(option))])
}

/** The rows of the table in docs/command-line.md. A row that names several codes has a meaning for each, in the same order. */
export function exitCodes() {
  const page = readFileSync(join(root, 'docs/command-line.md'), 'utf8')
  const table = /^## Exit codes\n\n([\s\S]*?)\n\n/m.exec(page)[1]
  return table
    .split('\n')
    .slice(2)
    .map(row => /^\| (.*?) \| (.*) \|$/.exec(row).slice(1))
    .flatMap(([codes, meanings]) => {
      const numbers = codes.split(' · ')
      return numbers.length === 1 ? [[codes, meanings]] : meanings.split(' · ').map((meaning, i) => [numbers[i], meaning])
    })
    .map(([code, meaning]) => [plain(code), plain(meaning)])
}

/** A cell of a table without its marks. */
function plain(markdown) {
  return markdown.replaceAll('`', '').replaceAll('\\|', '|')
}

function paragraph(words) {
  return `.PP\n${text(words)}`
}

function lowerFirst(words) {
  return words[0].toLowerCase() + words.slice(1)
}

/** A text as roff reads it: a hyphen is a minus sign that can be copied, and no line begins with a control character. */
function text(words) {
  return words.replaceAll('\\', '\\e').replaceAll('-', '\\-').replaceAll('…', '...').replaceAll("'", '\\(aq').replace(/^\./gm, '\\&.')
}
