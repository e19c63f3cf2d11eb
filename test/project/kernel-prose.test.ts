/**
 * The kernel contains no prose: its outcomes are kept in the state and compared by replicas, so a sentence in one could never be improved. Allowed are only the
 * messages of errors about bytes that cannot be read. Other errors are bugs of the caller, and name a code.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const KERNEL = fileURLToPath(new URL('../../src/kernel/', import.meta.url))
/** Two words, one after the other. */
const PROSE = /[A-Za-z]{2,}[,:;.]? [A-Za-z]{2,}/
const ABOUT_BYTES = /throw new (?:Damaged|NewerFormatError|OlderFormatError)$/

/** What stands before each parenthesis that is open. */
type Open = string[]

/** The literals of a source with two words or more. Simple: it knows comments, quotes and templates, and no regular expressions with quotes in them. */
function proseIn(file: string, text: string): string[] {
  const found: string[] = []
  const open: Open = []
  let code = ''
  const isAllowed = () => open.some(before => ABOUT_BYTES.test(before))
  for (let i = 0; i < text.length; i++) {
    const rest = text.slice(i, i + 2)
    const char = text[i]!
    if (rest === '//' || rest === '/*') {
      const end = text.indexOf(rest === '//' ? '\n' : '*/', i)
      if (end === -1) break
      i = end + (rest === '//' ? 0 : 1)
    } else if (char === "'" || char === '"' || char === '`') {
      let end = i + 1
      for (let depth = 0; end < text.length && (depth > 0 || text[end] !== char); end++) {
        if (text[end] === '\\') end++
        else if (char === '`' && text.startsWith('${', end)) depth++
        else if (char === '`' && depth > 0 && text[end] === '}') depth--
      }
      const literal = text.slice(i, end + 1)
      if (PROSE.test(literal) && !isAllowed()) found.push(`${file}:${text.slice(0, i).split('\n').length} ${literal.slice(0, 60)}`)
      i = end
    } else {
      if (char === '(') open.push(code)
      else if (char === ')') open.pop()
      code = `${code}${char}`.slice(-40)
    }
  }
  return found
}

test('no file of the kernel has a sentence in it', () => {
  const files = readdirSync(KERNEL, { recursive: true, encoding: 'utf8' }).filter(file => file.endsWith('.ts'))
  expect(files.length).toBeGreaterThan(50)
  expect(files.flatMap(file => proseIn(file, readFileSync(join(KERNEL, file), 'utf8')))).toEqual([])
})

test.each([
  ["refuse(state, 'HELD', 'it is held')", 1],
  ['const why = `it is held by $'.concat('{holder}`'), 1],
  ["const about = needed(name, 'The name of it.')", 1],
  ["throw new Error('it ends too soon')", 1],
  ["throw new Damaged('it ends too soon')", 0],
  ["refuse(state, 'too-many-leases', { limit })", 0],
  ['// it is held', 0],
] as const)('%s', (code, count) => {
  expect(proseIn('rule/x.ts', code)).toHaveLength(count)
})
