// The pages of docs/reference/ that describe the program itself: HTTP routes, RESP commands, the command line, error codes, settings and the manual page. They are
// written from the built program and from its doc comments, so that a page cannot say what the program does not do. `npm run docs:reference` writes them, and a
// test fails when the committed pages differ.

import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { root } from '../build.mjs'
import { cell, comment, members, parse, sentences } from './declarations.mjs'
import { manPage } from './man.mjs'

const HELP_WIDTH = 110

/** By the path from the root of the repository, the text of each generated page. */
export async function referencePages() {
  const pages = { http, resp, 'command-line': commandLine, errors, settings }
  const made = await Promise.all(
    Object.entries(pages).map(async ([name, make]) => [`docs/reference/${name}.md`, `${(await make()).trim()}\n`]),
  )
  return new Map([...made, ['docs/reference/leasehold.1', await manual()]])
}

async function manual() {
  const [{ program }, { EXAMPLES }] = await Promise.all([built('cli/program.js'), built('cli/examples.js')])
  return manPage(await program(), EXAMPLES)
}

const NOTE = '<!-- Written by `npm run docs:reference` from the program. Change the program, not this page. -->'

function built(path) {
  return import(pathToFileURL(join(root, 'dist', path)).href)
}

function page(title, introduction, parts) {
  return [`# ${title}`, NOTE, ...introduction, ...parts].join('\n\n')
}

function table(head, rows) {
  return [`| ${head.join(' | ')} |`, `|${'---|'.repeat(head.length)}`, ...rows.map(row => `| ${row.join(' | ')} |`)].join('\n')
}

// ---- HTTP ------------------------------------------------------------------------------------------------------------------

async function http() {
  const [{ openApi }, { ROUTES }] = await Promise.all([built('server/http/openapi.js'), built('server/http/routes.js')])
  const { paths } = JSON.parse(JSON.stringify(openApi(ROUTES)))
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ name: `${method.toUpperCase()} ${path}`, operation })),
  )
  return page(
    'Reference: HTTP routes',
    [
      'Every route, from the description that a server serves at `/openapi.json`. [HTTP](../http.md) explains how to use them: durations, repeated requests, keys, lists. Every failure has the body `{"error":{"code","message",…}}`, with a code of [errors](errors.md).',
      'Fields marked \\* are required. A duration is a number of milliseconds or a text such as `30s`.',
    ],
    operations.map(describeOperation),
  )
}

function describeOperation({ name, operation }) {
  const { summary, security, parameters = [], requestBody, responses } = operation
  const inputs = [
    ...parameters.map(({ name, in: place, required, schema }) => [name, place, required, schema]),
    ...fieldsOf(requestBody?.content['application/json'].schema).map(field => [field.name, 'body', field.required, field.schema]),
  ]
  const answers = Object.entries(responses).filter(([status]) => status !== 'default')
  return [
    `## ${name}`,
    `${summary}${security.length === 0 ? ' Needs no key.' : ''}`,
    ...(inputs.length === 0
      ? []
      : [
          table(
            ['field', 'in', 'type', ''],
            inputs.map(([name, place, required, schema]) => [
              `\`${name}\`${required ? ' \\*' : ''}`,
              place,
              typeOf(schema),
              cell(schema.description ?? ''),
            ]),
          ),
        ]),
    answers.map(([status, answer]) => `Answer ${status}: ${answerOf(answer)}`).join('\n\n'),
  ].join('\n\n')
}

function answerOf({ content, description }) {
  if (content === undefined) return description === 'Done.' ? 'no body.' : description
  const [type, { schema }] = Object.entries(content)[0]
  const fields = fieldsOf(schema)
  if (fields.length > 0) return `${fields.map(({ name, required }) => `\`${name}\`${required ? '' : '?'}`).join(', ')}.`
  return schema?.type === 'array' ? `a list of ${typeOf(schema.items)}.` : `\`${type}\`.`
}

/** The fields of an object, also where it is one of several or is put together from several. */
function fieldsOf(schema) {
  if (schema === undefined) return []
  const parts = schema.anyOf ?? schema.oneOf ?? schema.allOf
  if (parts !== undefined) {
    const all = parts.map(fieldsOf)
    const byName = new Map(all.flat().map(field => [field.name, field]))
    return [...byName.values()].map(field => ({
      ...field,
      required: schema.allOf === undefined ? all.every(fields => fields.some(f => f.name === field.name && f.required)) : field.required,
    }))
  }
  return Object.entries(schema.properties ?? {}).map(([name, field]) => ({
    name,
    schema: field,
    required: schema.required?.includes(name) === true,
  }))
}

function typeOf(schema) {
  const {
    type,
    anyOf,
    oneOf,
    items,
    enum: values,
    const: constant,
    minimum,
    maximum,
    maxLength,
    maxItems,
    additionalProperties,
    properties,
  } = schema ?? {}
  if (constant !== undefined) return `\`${JSON.stringify(constant)}\``
  if (values !== undefined) return values.map(value => `\`${JSON.stringify(value)}\``).join(' or ')
  const alternatives = anyOf ?? oneOf
  if (alternatives !== undefined) return [...new Set(alternatives.map(typeOf))].join(' or ')
  const bounds = [
    ...(minimum === undefined ? [] : [`from ${minimum}`]),
    ...(maximum === undefined || maximum === Number.MAX_SAFE_INTEGER ? [] : [`to ${maximum}`]),
    ...(maxLength === undefined ? [] : [`at most ${maxLength} characters`]),
    ...(maxItems === undefined ? [] : [`at most ${maxItems}`]),
  ]
  const name =
    type === 'array'
      ? `list of ${typeOf(items)}`
      : type === 'object' && additionalProperties?.type
        ? `object of ${typeOf(additionalProperties)}`
        : type === 'object' && properties !== undefined
          ? `object (${Object.keys(properties)
              .map(field => `\`${field}\``)
              .join(', ')})`
          : [type ?? 'any'].flat().join(' or ')
  return [name, ...bounds].join(', ')
}

// ---- RESP ------------------------------------------------------------------------------------------------------------------

async function resp() {
  const { COMMANDS } = await built('server/resp/commands.js')
  const rows = [...COMMANDS.values()].map(({ name, summary, verb, open }) => {
    const [usage, ...rest] = summary.split(/: (?!.*\[)/)
    const isLease = name.startsWith('LEASE.')
    return {
      isLease,
      row: [
        cell(`\`${name}${isLease ? ` ${usage}` : ''}\``),
        cell(isLease ? rest.join(': ') : summary),
        verb ?? (open ? 'no key' : 'any key'),
      ],
    }
  })
  const of = isLease => rows.filter(row => row.isLease === isLease).map(({ row }) => row)
  return page(
    'Reference: RESP commands',
    [
      'Every command, as the server describes it in `COMMAND DOCS`. [RESP](../resp.md) explains answers, waiting, pushes and repeated commands. Words in capitals are written as they are; what is in brackets may be left out.',
      'The last column is the verb that a [key](../operate/keys.md) needs for the names of the command.',
    ],
    ['## Leases', table(['command', 'answer', 'needs'], of(true)), '## Connections', table(['command', '', 'needs'], of(false))],
  )
}

// ---- Command line ----------------------------------------------------------------------------------------------------------

async function commandLine() {
  const { program } = await built('cli/program.js')
  const all = await program()
  const withChildren = command => [command, ...command.commands.flatMap(withChildren)]
  const commands = withChildren(all).filter(command => command !== all && command.name() !== 'help')
  return page(
    'Reference: commands',
    [
      'What `leasehold help COMMAND` prints. [The command line](../command-line.md) explains settings, exit codes and what `run` guarantees.',
    ],
    [`\`\`\`text\n${helpOf(all)}\n\`\`\``, ...commands.map(command => `## ${nameOf(command)}\n\n\`\`\`text\n${helpOf(command)}\n\`\`\``)],
  )
}

function nameOf(command) {
  return command.parent === null ? command.name() : `${nameOf(command.parent)} ${command.name()}`
}

function helpOf(command) {
  let help = ''
  command.configureOutput({ writeOut: text => (help += text), getOutHelpWidth: () => HELP_WIDTH, getOutHasColors: () => false })
  command.outputHelp()
  return help.trimEnd()
}

// ---- Errors ----------------------------------------------------------------------------------------------------------------

async function errors() {
  const [{ failureResponse }, { LeaseError }, { failureOf }] = await Promise.all([
    built('server/http/failure.js'),
    built('errors.js'),
    built('cli/exit.js'),
  ])
  const { REASONS } = await built('kernel/reason.js')
  const { source, declarations } = parse(join(root, 'dist/errors.d.ts'))
  const codes = members(declarations.get('FactsByCode'))
  const facts = code => members(code.typeAnnotation.typeAnnotation).map(({ key }) => `\`${key.name}\``)
  const rows = codes.map(code => {
    const name = code.key.name
    const [when, next] = comment(source, code).split(/\s*Next: /)
    const error = new LeaseError(name, '')
    const { exit, next: advice } = failureOf(error)
    return { name, when, next, advice, facts: facts(code), status: failureResponse(error).status, exit }
  })
  return page(
    'Reference: errors',
    [
      'Every failure has a `code` and often a `reason` for programs, facts, and a `message` for people. Programs do not look for words in messages: these may change in any version. The library throws a `LeaseError` (`LeaseError.is(error, \'HELD\')` narrows it), HTTP answers `{"error":{"code","reason","message",…facts}}`, RESP answers `-CODE message`, a tab and the reason and the facts as JSON, and the command line exits with a code and says what to do next.',
      'A server of a later version may send a reason that is not listed here: have a branch for it.',
      'A call that a `signal` ended rejects with the reason of the signal, not with one of these.',
      table(
        ['code', 'HTTP', 'exit code'],
        rows.map(({ name, status, exit }) => [
          `[\`${name}\`](#${name.toLowerCase()})`,
          status === 500 ? 'none' : String(status),
          String(exit),
        ]),
      ),
    ],
    [
      ...rows.map(({ name, when, next, advice, facts }) =>
        [
          `## ${name}`,
          `**When.** ${sentences(when)}`,
          `**What to do.** ${sentences(next)}${advice === undefined ? '' : ` From the shell: ${sentences(advice)}`}`,
          `**Facts.** ${facts.join(', ')}`,
        ].join('\n\n'),
      ),
      '## Reasons of refusals',
      'The rules of leasing refuse a command for one of these reasons. Facts with a `?` may be left out.',
      table(
        ['reason', 'code', 'facts'],
        Object.entries(REASONS).map(([reason, { code, facts }]) => [`\`${reason}\``, `\`${code}\``, refusalFacts(facts)]),
      ),
      '## Reasons of failures',
      'Stores, files, servers and programs fail for one of these reasons, with `UNAVAILABLE` if certainly nothing was done, with `UNKNOWN` if that is not certain, or with the code that fits better.',
      table(
        ['reason', 'meaning'],
        members(declarations.get('FactsByFailure')).map(member => [`\`${member.key.name ?? member.key.value}\``, comment(source, member)]),
      ),
      '## Only over HTTP',
      '`TOO_LARGE` (413): the body is larger than the limit `body`. Send less at once, or raise the limit. `INVALID` has the status 405 for a method that a route does not have, and 415 for a body that is not sent as `application/json`. `FORBIDDEN` has the status 421 if the `Host` header is not a name of this server: name it with `--host`. A status of 500 with `UNKNOWN` is a bug of the server: its log has the details.',
    ],
  )
}

function refusalFacts(facts) {
  return Object.entries(facts)
    .map(([name, type]) => `\`${name}${type.endsWith('?') ? '?' : ''}\``)
    .join(', ')
}

// ---- Settings --------------------------------------------------------------------------------------------------------------

async function settings() {
  const [{ program }, { DEFAULT_LIMITS }] = await Promise.all([built('cli/program.js'), built('server/limits.js')])
  const all = await program(['serve'])
  const serve = all.commands.find(command => command.name() === 'serve')
  const general = ['store', 'config', 'holder', 'json']
  const flags = serve.options.filter(option => !general.includes(option.attributeName()) && option.long !== '--help')
  const limits = documented('dist/server/limits.d.ts', 'Limits')
  const connectOptions = [
    ...documented('dist/connect/connect.d.ts', 'OpenOptions'),
    ...documented('dist/holder/lease-client.d.ts', 'LeasesOptions'),
  ]
  const once = [...new Map(connectOptions.map(row => [row.name, row])).values()]
  return page(
    'Reference: settings',
    [
      'A flag takes precedence over the environment, the environment over the configuration file, the file over the default. The file is JSON: the one that `--config` names, else `leasehold.json` beside the data file. Unknown settings are refused. [The command line](../command-line.md#settings) has the rules for paths and owners.',
    ],
    [
      '## Every command',
      table(
        ['flag', 'environment', 'in the file', ''],
        [
          ['`--store URL`', '`LEASEHOLD_URL`', '`store`', 'where the leases are: [stores](../stores.md)'],
          ['`--holder NAME`', '`LEASEHOLD_HOLDER`', '`holder`', 'the name that others see; default `host:pid`'],
          ['none', '`LEASEHOLD_API_KEY`', '`apiKey`', 'the key for a server. Never a flag: other users of the machine can read flags'],
          ['`--config FILE`', '', '', 'the configuration file'],
          ['`--json`', '', '', 'one JSON object per line'],
          ['`--agent NAME` (of `mcp` and `guard`)', '`LEASEHOLD_AGENT`', '', 'the name of a coding agent'],
          ['', '`NO_COLOR`', '', 'no colours'],
          ['', '`LEASEHOLD_DEBUG`', '', 'errors with their stack'],
          ['', '`XDG_STATE_HOME`', '', 'where the default file is: `leasehold/leasehold.db` below it, else below `~/.local/state`'],
          ['', '`NODE_EXTRA_CA_CERTS`', '', "a certificate authority to trust, in addition to the system's: a setting of Node itself"],
        ],
      ),
      '## A server',
      'In the configuration file these are fields of `serve`: `{"serve": {"listen": ["127.0.0.1:7420"], "limits": {"connections": 5000}}}`.',
      table(
        ['flag', 'in the file, below `serve`', ''],
        [
          ...flags.map(option => [
            cell(`\`${option.flags}\``),
            option.long === '--port' ? 'none: use `listen`' : `\`${option.attributeName()}\``,
            cell(option.description),
          ]),
          ['none', '`moveTo`', 'stores to which a key with `admin` may move the leases'],
          ['none', '`checkCommands`', 'commands that health checks may run, by name ([registry](../registry-server.md#on-a-server))'],
          ['none', '`limits`', 'numbers, below'],
        ],
      ),
      '## Limits of a server',
      'Each is a field of `serve.limits`. A request beyond a limit is refused with `LIMIT` or `TOO_LARGE`.',
      table(
        ['limit', 'default', ''],
        limits.map(({ name, text }) => [
          `\`${name}\``,
          name === 'unread' ? '268435456, at most an eighth of the heap' : String(DEFAULT_LIMITS[name]),
          cell(text.replace(/ ?@default .*$/s, '')),
        ]),
      ),
      '## Options of connect()',
      table(
        ['option', 'default', ''],
        once.map(({ name, text }) => {
          const [, what, byDefault = ''] = /^(.*?)(?:\s*@default (.*))?$/s.exec(text)
          return [`\`${name}\``, cell(byDefault), cell(what)]
        }),
      ),
    ],
  )
}

/** The fields of an interface with their doc comments. */
function documented(file, name) {
  const { source, declarations } = parse(join(root, file))
  return members(declarations.get(name)).map(member => ({ name: member.key.name, text: comment(source, member) }))
}
