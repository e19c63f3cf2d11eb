/**
 * Options, defaults, exit codes, statuses and error codes that the pages name are those of the program. The fields of JSON have their own test
 * (test/cli/json.test.ts), and docs.test.ts compares the list of commands with the reference.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { EXIT } from '../../src/cli/exit.ts'
import { program } from '../../src/cli/program.ts'
import { COMMAND_TABLE } from '../../src/kernel/command-table.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

function read(path: string): string {
  return readFileSync(join(root, path), 'utf8')
}

function under(folder: string, ending: RegExp): string[] {
  const files = readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
  return files.filter(path => ending.test(path)).map(path => join(folder, path))
}

/** Pages that people write. Those of the reference are written by the program. */
const pages = ['README.md', 'SECURITY.md', ...under('docs', /\.md$/)].filter(path => !path.startsWith('docs/reference/'))

/** What `pattern` finds in the pages, with the place of each. */
function found(pattern: RegExp): { readonly place: string; readonly groups: readonly string[] }[] {
  return pages.flatMap(page => {
    const text = read(page)
    return [...text.matchAll(pattern)].map(([, ...groups]) => ({ place: page, groups }))
  })
}

const reference = read('docs/reference/errors.md')
/** HTTP status and exit code of each error code. */
const codes = new Map([...reference.matchAll(/^\| \[`([A-Z_]+)`\]\(#\w+\) \| (\w+) \| (\d+) \|$/gm)].map(([, code, ...of]) => [code!, of]))

/** Words in capitals of engines, of their protocols and of operating systems. */
const FOREIGN = ['NOSPACE', 'PGPASSWORD', 'SIGSTOP', 'SUSPENDED', 'UV_THREADPOOL_SIZE']

describe('error codes', () => {
  test('every word in capitals that a page names is a code, or another word of the source', () => {
    const files = [...under('src', /\.tsx?$/), ...under('scripts', /\.mjs$/), ...under('ops', /\.service$/)]
    const source = files.map(read).join('\n')
    const words = new Set(source.match(/\b[A-Z][A-Z_]{3,}\b/g))
    const python = new Set(
      under('clients/python/src', /\.py$/)
        .map(read)
        .join('\n')
        .match(/\b[A-Z][A-Z_]{3,}\b/g),
    )
    expect(codes.size).toBeGreaterThan(14)
    const unknown = found(/`([A-Z][A-Z_]{3,})`/g).filter(
      ({ groups: [word] }) => !codes.has(word!) && !words.has(word!) && !python.has(word!) && !FOREIGN.includes(word!),
    )
    expect(unknown).toEqual([])
    const named = new Set(found(/`([A-Z][A-Z_]{3,})`/g).map(({ groups: [word] }) => word!))
    expect(FOREIGN.filter(word => !named.has(word) || words.has(word))).toEqual([])
  })

  test('a status beside a code is the one that the server answers', () => {
    const statuses = new Map([...codes].map(([code, [status]]) => [code, status]))
    statuses.set('TOO_LARGE', '413')
    const pairs = found(/`([A-Z_]{4,})` \((\d{3})\)/g).concat(
      found(/\b(\d{3}) `([A-Z_]{4,})`/g).map(({ place, groups: [status, code] }) => ({ place, groups: [code!, status!] })),
    )
    expect(pairs.length).toBeGreaterThan(4)
    // A request with a wrong method, type or host name is refused with the code that fits best.
    const more: Readonly<Record<string, readonly string[]>> = { INVALID: ['405', '415'], FORBIDDEN: ['421'] }
    expect(pairs.filter(({ groups: [code, status] }) => statuses.get(code!) !== status && !more[code!]?.includes(status!))).toEqual([])
  })
})

describe('exit codes', () => {
  test('every exit code that a page names is one of the program', () => {
    const named = found(/\b(?:exit code|exit codes|exits with|ends with code|ends with|the code is)(?: is)? `?(\d{1,3})\b(?! [+a-z%])/gi)
    expect(named.length).toBeGreaterThan(4)
    const known = [0, ...Object.values(EXIT)]
    expect(named.filter(({ groups: [code] }) => !known.includes(Number(code) as 0))).toEqual([])
  })
})

/** The options of an interface, with the default that its comments state. */
function declared(file: string, name: string): Map<string, string> {
  const text = read(file).split(`export interface ${name} `)[1]!.split('\n}')[0]!
  return new Map(
    [...text.matchAll(/(?:\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\s*)?readonly (\w+)\??:/g)].map(([, comment = '', option]) => [
      option!,
      /@default ([^\n]*?)(?: \*\/|\n|$)/.exec(comment)?.[1]?.trim() ?? '',
    ]),
  )
}

/** The rows of a table whose first column names options, with their default. */
function rows(page: string, heading: RegExp): Map<string, string> {
  const table = read(page).split(heading)[1]!.split(/\n\n/)[0]!
  return new Map(
    table
      .split('\n')
      .slice(2)
      .flatMap(line => {
        const [, names = '', value = ''] = line.split(/(?<!\\)\|/)
        return [...names.matchAll(/`(\w+)`/g)].map(([, option]) => [option!, value.trim()] as const)
      }),
  )
}

/** A value that can be compared: a text in quotes, a number, true or false. */
function literal(text: string): string | undefined {
  return /^`?('[^']*'|\d[\d.]*|true|false)`?(?![\w%])/.exec(text)?.[1]
}

describe('options of the library', () => {
  const acquire = declared('src/holder/acquire-options.ts', 'AcquireOptions')
  const advanced = declared('src/holder/acquire-options.ts', 'AdvancedAcquireOptions')
  const connect = new Map([
    ...declared('src/holder/lease-client.ts', 'LeasesOptions'),
    ...declared('src/connect/connect.ts', 'OpenOptions'),
    ...declared('src/connect/retry.ts', 'ConnectRetryOptions'),
  ])

  test.each([
    [
      'connect',
      connect,
      rows('docs/library.md', /^(?=\| option \| default \| \|\n\|---\|---\|---\|\n\| `holder`)/m),
      ['clock', 'maxStall'],
    ],
    ['acquire', acquire, rows('docs/library.md', /^(?=\| option \| default \| \|\n\|---\|---\|---\|\n\| `ttl`)/m), ['learn']],
    ['acquire under advanced', advanced, rows('docs/library.md', /^(?=\| in `advanced` \|)/m), []],
  ] as const)('docs/library.md lists those of %s, and no others', (_, source, listed, elsewhere) => {
    expect([...listed.keys(), ...elsewhere].sort()).toEqual([...source.keys()].sort())
  })

  test('the defaults in docs/library.md are those of the source', () => {
    const wrong: string[] = []
    let compared = 0
    for (const [source, heading] of [
      [connect, /^(?=\| option \| default \| \|\n\|---\|---\|---\|\n\| `holder`)/m],
      [acquire, /^(?=\| option \| default \| \|\n\|---\|---\|---\|\n\| `ttl`)/m],
    ] as const)
      for (const [option, value] of rows('docs/library.md', heading)) {
        const [said, is] = [literal(value), literal(source.get(option) ?? '')]
        if (said === undefined && is === undefined) continue
        compared++
        // The ttl of a request is that of connect.
        if (said !== is && option !== 'ttl') wrong.push(`${option}: ${value}, and the source says ${source.get(option)}`)
      }
    expect(compared).toBeGreaterThan(8)
    expect(wrong).toEqual([])
  })

  test('docs/python.md lists the options that connect of the Python client has, with their defaults', () => {
    const source = read('clients/python/src/leasehold_client/aio/__init__.py').split('def connect(')[1]!.split(') ->')[0]!
    const options = new Map([...source.matchAll(/^ {4}(\w+): .* = (.*),$/gm)].map(([, name, value]) => [name!, value!]))
    const listed = rows('docs/python.md', /^(?=\| option \| default \| \|)/m)
    expect([...listed.keys(), 'tls', 'url'].sort()).toEqual([...options.keys()].sort())
    const named = new Map([...options].map(([name, value]) => [name, value === 'CLOCK_ERROR' ? '0.005' : value]))
    expect([...listed].filter(([name, value]) => /^\d/.test(value) && value !== named.get(name))).toEqual([])
  })
})

describe('the command line', () => {
  test('has every option with which a page writes a command', async () => {
    const all = await program()
    const shared = all.options.map(({ long }) => long!)
    const written = found(/\bleasehold ((?:pool |key |policy )?[a-z]+) ([^`\n|#;&]*)/g)
    let compared = 0
    const unknown = written.flatMap(({ place, groups: [name, rest] }) => {
      const [first, second] = name!.split(' ')
      const parent = all.commands.find(command => command.name() === first)
      const command = second === undefined ? parent : parent?.commands.find(each => each.name() === second)
      if (command === undefined) return []
      const own = [...shared, '--help', '--version', ...command.options.flatMap(({ long, short }) => [long!, short ?? ''])]
      const options = rest!.split(/ -- /)[0]!.match(/(?<![\w-])--[a-z][\w-]*/g) ?? []
      compared += options.length
      return options.filter(option => !own.includes(option)).map(option => `${place}: leasehold ${name} ${option}`)
    })
    expect(compared).toBeGreaterThan(150)
    expect(unknown).toEqual([])
  })

  test('docs/command-line.md has every rule of policies that the program knows, and no others', () => {
    const table = read('docs/command-line.md').split('## The rules of a policy\n')[1]!.split('\n## ')[0]!
    const named = [...table.matchAll(/^\| ((?:`\w+`[ ,·]*)+) \|/gm)].flatMap(([, names]) =>
      [...names!.matchAll(/`(\w+)`/g)].map(([, name]) => name!),
    )
    const known = Object.keys(COMMAND_TABLE.policy.fields.rules.type.fields!)
    expect(known.length).toBeGreaterThan(25)
    expect(named.filter(name => !known.includes(name))).toEqual([])
    expect(
      known.filter(
        name => !read('docs/command-line.md').includes(`\`${name}\``) && !pages.some(page => read(page).includes(`\`${name}\``)),
      ),
    ).toEqual([])
  })
})

test('the pages of the library name every method and property of leases, and every entry point', () => {
  const text = ['library', 'library-leases'].map(page => read(`docs/${page}.md`).replace(/^```[\s\S]*?^```$/gm, '')).join('\n')
  const codes = text.match(/`[^`]+`/g)!.join(' ')
  const report = read('test/project/api-report.txt')
  const members = ['Lease', 'GoverningClient', 'LeaseClient', 'Leases'].flatMap(name => {
    const [, body] = new RegExp(`^export declare (?:abstract )?class ${name} [^{]*\\{\n([\\s\\S]*?)^\\}`, 'm').exec(report)!
    return [...body!.matchAll(/^ {4}(?:get |readonly |abstract readonly )?([a-z]\w*)[(<:]/gm)].map(([, member]) => member!)
  })
  const listed = [...new Set(members)].filter(member => member !== 'constructor')
  expect(listed.length).toBeGreaterThan(40)
  expect(listed.filter(member => !new RegExp(`\\b${member}\\b`).test(codes))).toEqual([])
  const { exports } = JSON.parse(read('package.json')) as { exports: Record<string, unknown> }
  const entries = Object.keys(exports).filter(name => !name.includes('*') && !/^\.\/(package\.json|store\/|recipe\/)/.test(name))
  expect(entries.filter(name => !text.includes(`\`leasehold${name.slice(1)}\``))).toEqual([])
})
