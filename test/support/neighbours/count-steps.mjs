// The loader of counted.mjs: adds a count to every function and every loop of the files in dist/.
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { parseAst } from 'rolldown/parseAst'

const DIST = new URL('../../../dist/', import.meta.url).href
const COUNT = 'globalThis.leaseholdSteps.count++'
const LOOPS = new Set(['ForStatement', 'ForInStatement', 'ForOfStatement', 'WhileStatement', 'DoWhileStatement'])

export async function load(url, context, next) {
  if (!url.startsWith(DIST) || !url.endsWith('.js')) return next(url, context)
  return { format: 'module', source: counted(await readFile(fileURLToPath(url), 'utf8')), shortCircuit: true }
}

/** @param {string} source */
export function counted(source) {
  /** @type {[at: number, text: string][]} */
  const added = []
  const visit = node => {
    if (Array.isArray(node)) return node.forEach(visit)
    if (node === null || typeof node !== 'object' || typeof node.type !== 'string') return
    const { type, body } = node
    const isFunction = type === 'FunctionDeclaration' || type === 'FunctionExpression' || type === 'ArrowFunctionExpression'
    if (isFunction || LOOPS.has(type)) {
      if (body.type === 'BlockStatement') added.push([body.start + 1, `${COUNT};`])
      else if (isFunction) added.push([body.start, `(${COUNT},(`], [body.end, '))'])
      else added.push([body.start, `{${COUNT};`], [body.end, '}'])
    }
    for (const [name, value] of Object.entries(node)) if (name !== 'type') visit(value)
  }
  visit(parseAst(source).body)
  // Outer nodes were added first: where several begin at one place they open in this order. What ends at one place closes in the opposite one.
  const isClosing = text => text === '))' || text === '}'
  const inOrder = added
    .map(([at, text], i) => ({ at, text, rank: isClosing(text) ? -i : i + added.length }))
    .sort((a, b) => a.at - b.at || a.rank - b.rank)
  let text = ''
  let from = 0
  for (const { at, text: what } of inOrder) {
    text += source.slice(from, at) + what
    from = at
  }
  return text + source.slice(from)
}
