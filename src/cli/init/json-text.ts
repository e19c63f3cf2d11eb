/**
 * Edits JSON in place: adds an element to a list and takes it out again, and leaves every other byte as it is. A parser that writes the whole file
 * anew would lose the user's spacing and order.
 */

interface JsonNode {
  readonly start: number
  readonly end: number
  readonly value: unknown
  /** The members of an object. */
  readonly members?: readonly JsonMember[]
  /** The elements of an array. */
  readonly elements?: readonly JsonNode[]
}

interface JsonMember {
  readonly name: string
  readonly start: number
  readonly node: JsonNode
}

/** The text with `value` appended to the array at `path`. Objects and arrays on the way are made. Throws for text that is not JSON, or of another shape. */
export function withElement(text: string, path: readonly string[], value: unknown): string {
  const step = indentOf(text)
  let node = parseJson(text)
  let depth = 0
  for (const [i, name] of path.entries()) {
    if (node.members === undefined) throw shapeError(path.slice(0, i), 'an object')
    const member = node.members.find(one => one.name === name)
    if (member === undefined) {
      const rest = path.slice(i + 1).reduceRight<unknown>((inner, key) => ({ [key]: inner }), [value])
      return insertInto(text, node, `${JSON.stringify(name)}: ${pretty(rest, step, depth + 1)}`, step, depth)
    }
    node = member.node
    depth++
  }
  if (node.elements === undefined) throw shapeError(path, 'a list')
  return insertInto(text, node, pretty(value, step, depth + 1), step, depth)
}

/**
 * The text with the member at `path` set to `value`: added at the end of its object, or in place of the value that it has. Objects on the way are made. Throws for text that is not
 * JSON, or of another shape.
 */
export function withMember(text: string, path: readonly string[], value: unknown): string {
  const step = indentOf(text)
  let node = parseJson(text)
  for (const [i, name] of path.entries()) {
    if (node.members === undefined) throw shapeError(path.slice(0, i), 'an object')
    const member = node.members.find(one => one.name === name)
    if (member === undefined) {
      const rest = path.slice(i + 1).reduceRight<unknown>((inner, key) => ({ [key]: inner }), value)
      return insertInto(text, node, `${JSON.stringify(name)}: ${pretty(rest, step, i + 1)}`, step, i)
    }
    node = member.node
  }
  if (JSON.stringify(node.value) === JSON.stringify(value)) return text
  return `${text.slice(0, node.start)}${pretty(value, step, path.length)}${text.slice(node.end)}`
}

/** The text without the member at `path`; and without the objects around it, where nothing is left in them. */
export function withoutMember(text: string, path: readonly string[], isOurs: (value: unknown) => boolean): string {
  const way: { readonly holder: JsonNode; readonly index: number }[] = []
  let node = parseJson(text)
  for (const name of path) {
    const index = node.members?.findIndex(one => one.name === name) ?? -1
    if (index < 0) return text
    way.push({ holder: node, index })
    node = node.members![index]!.node
  }
  return isOurs(node.value) ? withoutOutermost(text, way) : text
}

/** The text without the elements of the array at `path` that `isOurs`; and without the array and the objects around it, where nothing is left in them. */
export function withoutElements(text: string, path: readonly string[], isOurs: (value: unknown) => boolean): string {
  for (let result = text; ; ) {
    const next = withoutOne(result, path, isOurs)
    if (next === undefined) return result
    result = next
  }
}

function withoutOne(text: string, path: readonly string[], isOurs: (value: unknown) => boolean): string | undefined {
  const way: { readonly holder: JsonNode; readonly index: number }[] = []
  let node = parseJson(text)
  for (const name of path) {
    const index = node.members?.findIndex(one => one.name === name) ?? -1
    if (index < 0) return undefined
    way.push({ holder: node, index })
    node = node.members![index]!.node
  }
  const index = node.elements?.findIndex(element => isOurs(element.value)) ?? -1
  if (index < 0) return undefined
  way.push({ holder: node, index })
  return withoutOutermost(text, way)
}

/** Takes out the last thing of the way, or the outermost one that would be left empty. */
function withoutOutermost(text: string, way: { readonly holder: JsonNode; readonly index: number }[]): string {
  let { holder, index: at } = way.pop()!
  while (sizeOf(holder) === 1 && way.length > 0) ({ holder, index: at } = way.pop()!)
  return cut(text, holder, at)
}

function sizeOf({ members, elements }: JsonNode): number {
  return (members ?? elements ?? []).length
}

/** Takes out one member or element, with the comma that belonged to it. */
function cut(text: string, holder: JsonNode, index: number): string {
  const parts = holder.members?.map(({ start, node }) => ({ start, end: node.end })) ?? holder.elements!
  if (parts.length === 1) return `${text.slice(0, holder.start + 1)}${text.slice(holder.end - 1)}`
  const [from, to] = index > 0 ? [parts[index - 1]!.end, parts[index]!.end] : [parts[0]!.start, parts[1]!.start]
  return text.slice(0, from) + text.slice(to)
}

function insertInto(text: string, holder: JsonNode, item: string, step: string, depth: number): string {
  const last = (holder.members?.at(-1)?.node ?? holder.elements?.at(-1))?.end
  const indent = step === '' ? '' : `\n${step.repeat(depth + 1)}`
  if (last !== undefined) return `${text.slice(0, last)},${indent}${item}${text.slice(last)}`
  const close = step === '' ? '' : `\n${step.repeat(depth)}`
  return `${text.slice(0, holder.start + 1)}${indent}${item}${close}${text.slice(holder.end - 1)}`
}

function pretty(value: unknown, step: string, depth: number): string {
  return step === '' ? JSON.stringify(value) : JSON.stringify(value, null, step).replaceAll('\n', `\n${step.repeat(depth)}`)
}

/** The user's own indent, as far as the text shows one. */
function indentOf(text: string): string {
  const [, indent] = /^[[{]\s*?\n([ \t]+)\S/.exec(text.trimStart()) ?? []
  return indent ?? (/\n/.test(text.trim()) || text.trim().length <= 2 ? '  ' : '')
}

function shapeError(path: readonly string[], shape: string): Error {
  return new Error(`${path.length === 0 ? 'the file' : `"${path.join('.')}"`} is not ${shape}`)
}

/** The positions of every part. Throws for anything that is not JSON: comments, too. */
export function parseJson(text: string): JsonNode {
  JSON.parse(text) // with the better messages
  let at = 0
  const skip = () => {
    while (/\s/.test(text[at] ?? '')) at++
  }
  const scalar = (): JsonNode => {
    const start = at
    if (text[at] === '"') {
      at++
      while (text[at] !== '"') at += text[at] === '\\' ? 2 : 1
      at++
    } else while (at < text.length && !/[\s,\]}]/.test(text[at]!)) at++
    return { start, end: at, value: JSON.parse(text.slice(start, at)) }
  }
  const list = <T>(close: string, part: () => T): readonly T[] => {
    const parts: T[] = []
    at++
    for (skip(); text[at] !== close; skip()) {
      if (text[at] === ',') {
        at++
        skip()
      }
      parts.push(part())
    }
    at++
    return parts
  }
  const node = (): JsonNode => {
    skip()
    const start = at
    if (text[at] !== '{' && text[at] !== '[') return scalar()
    if (text[at] === '[') {
      const elements = list(']', node)
      return { start, end: at, value: elements.map(({ value }) => value), elements }
    }
    const members = list('}', () => {
      const name = scalar()
      skip()
      at++ // the colon
      return { name: name.value as string, start: name.start, node: node() }
    })
    return { start, end: at, value: Object.fromEntries(members.map(({ name, node }) => [name, node.value])), members }
  }
  return node()
}
