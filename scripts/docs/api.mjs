// The API of the package, from the doc comments in its declarations: one page for each entry point of package.json. The pages are part of the built site and are
// not committed.

import { readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { root } from '../build.mjs'
import { namesMatching } from '../packed-files.mjs'
import { cell, comment, members, parse } from './declarations.mjs'

/** By the path in the site, the text of each page. */
export function apiPages() {
  const entries = entryPoints()
  const pages = entries.map(({ name, file }) => [`reference/api/${pageName(name)}.md`, entryPage(name, exportsOf(file))])
  const index = [
    '# Reference: API',
    'Every exported name, from the doc comments in the source. [The library](../../library.md) and the [recipes](../../README.md#guides) explain how to use them.',
    [
      '| import from | |',
      '|---|---|',
      ...entries.map(({ name, file }) => `| [\`${name}\`](${pageName(name)}.md) | ${cell(firstSentence(headOf(file)))} |`),
    ].join('\n'),
  ]
  return new Map([['reference/api/index.md', `${index.join('\n\n')}\n`], ...pages])
}

/** Names to import from, with the declaration file of each. A pattern such as `./store/*` stands for all that it matches. */
function entryPoints() {
  const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  return Object.entries(exports).flatMap(([name, { types }]) => {
    if (types === undefined) return []
    const found = name.includes('*')
      ? namesMatching(root, types).map(star => [name.replace('*', star), types.replace('*', star)])
      : [[name, types]]
    return found.map(([name, types]) => ({ name: `leasehold${name.slice(1)}`, file: join(root, types) }))
  })
}

function pageName(name) {
  return name.replaceAll('/', '-')
}

/** Returns what a file exports, its re-exports followed to where they are declared. */
function exportsOf(file, seen = new Set()) {
  if (seen.has(file)) return []
  seen.add(file)
  const { body, declarations } = parse(file)
  const imported = new Map(
    body
      .filter(statement => statement.type === 'ImportDeclaration')
      .flatMap(({ source, specifiers }) =>
        specifiers
          .filter(({ type }) => type === 'ImportSpecifier')
          .map(({ local, imported }) => [local.name, { from: source.value, name: imported.name }]),
      ),
  )
  const found = body.flatMap(statement => {
    if (statement.type === 'ExportAllDeclaration') return exportsOf(follow(file, statement.source.value), seen)
    if (statement.type !== 'ExportNamedDeclaration') return []
    const { declaration, specifiers, source } = statement
    if (declaration) {
      const id = declaration.id ?? declaration.declarations?.[0].id
      return [{ name: id.name, file, declaration: declarations.get(id.name) }]
    }
    return specifiers.map(({ local, exported }) => {
      const from = source?.value ?? imported.get(local.name)?.from
      const original = source ? local.name : (imported.get(local.name)?.name ?? local.name)
      return { name: exported.name, ...declared(from === undefined ? file : follow(file, from), original) }
    })
  })
  return [...new Map(found.filter(({ declaration }) => declaration !== undefined).map(item => [item.name, item])).values()]
}

function declared(file, name) {
  if (file === undefined) return { file, declaration: undefined }
  const { declarations } = parse(file)
  if (declarations.has(name)) return { file, declaration: declarations.get(name) }
  const again = exportsOf(file).find(item => item.name === name)
  return { file: again?.file, declaration: again?.declaration }
}

function follow(file, specifier) {
  if (!specifier.startsWith('.')) return undefined
  return resolve(dirname(file), specifier.replace(/\.(ts|js)$/, '.d.ts'))
}

function entryPage(name, items) {
  const order = ['function', 'class', 'const', 'interface', 'type']
  const sorted = items.toSorted(
    (a, b) => order.indexOf(kindOf(a.declaration)) - order.indexOf(kindOf(b.declaration)) || a.name.localeCompare(b.name),
  )
  return `${[`# ${name}`, `\`import { … } from '${name}'\``, ...sorted.map(describe)].join('\n\n')}\n`
}

const KINDS = {
  TSInterfaceDeclaration: 'interface',
  ClassDeclaration: 'class',
  TSTypeAliasDeclaration: 'type',
  TSDeclareFunction: 'function',
  FunctionDeclaration: 'function',
}

function kindOf({ type }) {
  return KINDS[type] ?? 'const'
}

function describe({ name, file, declaration }) {
  const { source } = parse(file)
  const kind = kindOf(declaration)
  const shown =
    kind === 'class' || kind === 'interface'
      ? headline(source, declaration)
      : [declaration, ...declaration.more].map(part => textOf(source, part)).join('\n')
  const rows =
    kind === 'class' || kind === 'interface'
      ? members(declaration)
          .filter(isPublic)
          .map(member => row(source, member))
      : []
  return [
    `## ${name}`,
    `*${kind}*`,
    prose(comment(source, declaration)),
    `\`\`\`ts\n${shown}\n\`\`\``,
    rows.length === 0 ? '' : ['| member | |', '|---|---|', ...rows].join('\n'),
  ]
    .filter(part => part !== '')
    .join('\n\n')
}

function isPublic({ key, accessibility }) {
  return key?.type !== 'PrivateIdentifier' && (accessibility ?? 'public') === 'public'
}

/** A class or an interface up to its opening brace. */
function headline(source, { start, body }) {
  return source
    .slice(start, body.start)
    .replace(/^export (declare )?/, '')
    .trim()
}

function textOf(source, { start, end }) {
  return withoutComments(source.slice(start, end))
    .replace(/^export (declare )?/, '')
    .replace(/;$/, '')
}

function row(source, member) {
  const signature = withoutComments(source.slice(member.start, member.end))
    .replace(/;$/, '')
    .replace(/\s+/g, ' ')
    .replace(/^readonly /, '')
  return `| ${cell(`\`${signature.replaceAll('`', "'")}\``)} | ${cell(inline(comment(source, member)))} |`
}

function withoutComments(text) {
  return text.replace(/\/\*[\s\S]*?\*\/\s*/g, '').replace(/^\s*\n/gm, '')
}

/** A doc comment as Markdown: examples become blocks of code, and the default a sentence. */
function prose(text) {
  const [before, ...examples] = text.split(/^@example\s*/m)
  const blocks = examples.map(example => `\`\`\`ts\n${example.trim()}\n\`\`\``)
  return [escaped(before.trim()).replace(/^@default (.*)$/m, '\nDefault: $1'), ...blocks].filter(part => part !== '').join('\n\n')
}

/** A doc comment for a cell: without its examples. */
function inline(text) {
  return text
    .split(/^@example/m)[0]
    .trim()
    .replace(/@default ([\s\S]*)$/, 'Default: $1')
    .replace(/@\w+ /g, '')
}

function escaped(text) {
  return text
    .split(/(`[^`]*`)/)
    .map((part, i) => (i % 2 === 1 ? part : part.replaceAll('<', '&lt;')))
    .join('')
}

/** The first comment of the source: the compiler drops it from some declaration files. */
function headOf(file) {
  const source = readFileSync(file.replace(`${root}dist/`, `${root}src/`).replace(/\.d\.ts$/, '.ts'), 'utf8')
  const match = /^\/\*\*([\s\S]*?)\*\//.exec(source)
  return match === null ? '' : match[1].replace(/^\s*\* ?/gm, '').trim()
}

function firstSentence(text) {
  return /^[\s\S]*?[.!?](?=\s|$)/.exec(text)?.[0] ?? text
}
