// Reads the declarations of the package (`.d.ts` of the build) with their doc comments. The parser is that of the bundler: the compiler in use has no
// API for programs.

import { readFileSync } from 'node:fs'
import { parseAst } from 'rolldown/parseAst'

const parsed = new Map()

/** The text of a declaration file, its statements, and its declarations by name. */
export function parse(file) {
  if (!parsed.has(file)) {
    const source = readFileSync(file, 'utf8')
    const { body } = parseAst(source, { lang: 'dts' })
    const declarations = new Map()
    for (const statement of body) {
      const declaration = statement.type === 'ExportNamedDeclaration' ? statement.declaration : statement
      const named = declaration?.type === 'VariableDeclaration' ? declaration.declarations[0] : declaration
      if (named?.id?.name === undefined) continue
      // Of several signatures of a function, the first has the doc comment.
      const { name } = named.id
      if (!declarations.has(name)) declarations.set(name, { ...declaration, start: statement.start, end: statement.end, more: [] })
      else declarations.get(name).more.push({ start: statement.start, end: statement.end })
    }
    parsed.set(file, { source, body, declarations })
  }
  return parsed.get(file)
}

/** The members of an interface, a class or an object type. */
export function members(declaration) {
  const { body, members, typeAnnotation } = declaration
  return members ?? body?.body ?? typeAnnotation?.members ?? []
}

/** The doc comment just before a node, as one text. */
export function comment(source, { start }) {
  const before = source.slice(0, start).trimEnd()
  if (!before.endsWith('*/')) return ''
  const begin = before.lastIndexOf('/*')
  if (!before.startsWith('/**', begin)) return ''
  return before
    .slice(begin + 3, -2)
    .split('\n')
    .map(line => line.replace(/^\s*\* ?/, '').trimEnd())
    .join('\n')
    .trim()
}

/** A text for a cell of a table. */
export function cell(text) {
  return text
    .split(/(`[^`]*`)/)
    .map((part, i) => (i % 2 === 1 ? part : part.replace(/[<>]/g, sign => (sign === '<' ? '&lt;' : '&gt;'))))
    .join('')
    .replace(/(?<!\\)\|/g, '\\|')
    .replace(/\s*\n\s*/g, ' ')
    .trim()
}

/** A text as sentences: with a capital letter and a full stop. */
export function sentences(text) {
  const line = cell(text).replaceAll('\\|', '|')
  return `${line.charAt(0).toUpperCase()}${line.slice(1)}${/[.!?]$/.test(line) ? '' : '.'}`
}
