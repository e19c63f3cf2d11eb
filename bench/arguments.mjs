// The arguments of `npm run bench`.
import { parseArgs } from 'node:util'

export const USAGE = `npm run bench [-- NAME…] [--quick] [--json FILE] [--write-docs]

  NAME          a group or a part of one (see below); without any, all groups
  --quick       fewer and shorter rounds: all groups in less than five minutes. Compare ratios, not figures.
  --json FILE   also write everything that was measured into one file
  --write-docs  afterwards show the results of bench/results in docs/numbers.md; with no NAME, measure nothing`

/** Names that these benchmarks had before. */
const ALIASES = { server: ['servers', 'native'] }

/** A wrong argument. Its message says what to do. */
export class UsageError extends Error {}

/**
 * Parses the arguments against a table of groups, `{ group: { parts: { part: function } } }`.
 * Returns the chosen parts by group, in the order of the table.
 */
export function parseArguments(args, groups) {
  let parsed
  try {
    parsed = parseArgs({
      args,
      allowPositionals: true,
      options: {
        quick: { type: 'boolean', default: false },
        json: { type: 'string' },
        'write-docs': { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    })
  } catch (error) {
    throw new UsageError(`${error.message}\n\n${USAGE}`)
  }
  const { values } = parsed
  const positionals = parsed.positionals.flatMap(name => ALIASES[name] ?? [name])
  if (values.json === '') throw new UsageError('--json needs the name of a file')
  const writeDocs = values['write-docs']
  const unknown = positionals.filter(name => !(name in groups) && groupOf(name, groups) === undefined)
  if (unknown.length > 0) throw new UsageError(`there is no benchmark ${unknown.join(', ')}\n\n${namesOf(groups)}`)
  const everything = positionals.length === 0 && !writeDocs
  const chosen = Object.entries(groups)
    .map(([group, { parts }]) => {
      const whole = everything || positionals.includes(group)
      return { group, whole, parts: Object.keys(parts).filter(part => whole || positionals.includes(part)) }
    })
    .filter(({ parts }) => parts.length > 0)
  return { chosen, quick: values.quick, json: values.json, writeDocs, help: values.help }
}

function groupOf(part, groups) {
  return Object.keys(groups).find(group => part in groups[group].parts)
}

/** The groups and their parts, for a reader. */
export function namesOf(groups) {
  const rows = Object.entries(groups).map(([group, { parts }]) => `  ${group.padEnd(10)} ${Object.keys(parts).join(', ')}`)
  return `groups and their parts:\n${rows.join('\n')}`
}
