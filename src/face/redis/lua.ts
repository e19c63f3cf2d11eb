/**
 * The syntax of the Lua that lock scripts are written in: locals, assignments, `if`, `for`, `return`, calls and expressions. Lock clients send a page of it at
 * most; anything else is refused by name. There are no functions, no metatables, no `while` and no `goto`.
 */

export class LuaError extends Error {
  override readonly name = 'LuaError'
}

export type Expression =
  | { readonly kind: 'value'; readonly value: string | number | boolean | undefined }
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'index'; readonly of: Expression; readonly at: Expression }
  | { readonly kind: 'call'; readonly name: string; readonly args: readonly Expression[] }
  | { readonly kind: 'table'; readonly items: readonly Expression[] }
  | { readonly kind: 'unary'; readonly operator: string; readonly of: Expression }
  | { readonly kind: 'binary'; readonly operator: string; readonly left: Expression; readonly right: Expression }

export type LuaStatement =
  | { readonly kind: 'local' | 'assign'; readonly names: readonly string[]; readonly values: readonly Expression[] }
  | { readonly kind: 'set'; readonly table: Expression; readonly at: Expression; readonly value: Expression }
  | { readonly kind: 'if'; readonly branches: readonly { readonly when: Expression | undefined; readonly body: Block }[] }
  | { readonly kind: 'each'; readonly names: readonly string[]; readonly of: Expression; readonly body: Block }
  | { readonly kind: 'count'; readonly name: string; readonly from: Expression; readonly to: Expression; readonly body: Block }
  | { readonly kind: 'do'; readonly body: Block }
  | { readonly kind: 'return'; readonly value: Expression | undefined }
  | { readonly kind: 'call'; readonly call: Expression }

export type Block = readonly LuaStatement[]

/** No lock script is longer, or nested deeper. This much is parsed in a few milliseconds. */
export const MAX_LENGTH = 8_192
const MAX_DEPTH = 64

const KEYWORDS: ReadonlySet<string> = new Set(
  'and break do else elseif end false for function goto if in local nil not or repeat return then true until while'.split(' '),
)
/** The operators with two sides, by how strongly they bind. */
const BINDING: ReadonlyMap<string, number> = new Map(
  [['or'], ['and'], ['<', '>', '<=', '>=', '~=', '=='], ['..'], ['+', '-'], ['*', '/', '%']].flatMap((signs, level) =>
    signs.map(sign => [sign, level]),
  ),
)

interface LuaToken {
  readonly kind: 'name' | 'word' | 'text' | 'number' | 'sign' | 'end'
  readonly text: string
}

const TOKEN =
  /\s+|--\[(=*)\[[\s\S]*?\]\1\]|--(?!\[=*\[)[^\n]*|([A-Za-z_]\w*)|(0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|\[\[([\s\S]*?)\]\]|(\.\.|==|~=|<=|>=|-(?!-)|[+*/%#<>=(){}[\].,;:])/y

/** Throws LuaError for anything that is not the Lua of a lock script. */
export function parseLua(source: string): Block {
  if (source.length > MAX_LENGTH) throw new LuaError(`it is longer than ${MAX_LENGTH} characters`)
  return new Parser(tokensOf(source)).whole()
}

function tokensOf(source: string): LuaToken[] {
  const tokens: LuaToken[] = []
  TOKEN.lastIndex = 0
  while (TOKEN.lastIndex < source.length) {
    const at = TOKEN.lastIndex
    const found = TOKEN.exec(source)
    if (found === null) throw new LuaError(`"${source.slice(at, at + 20)}" is not understood`)
    const [, , name, number, double, single, long, sign] = found
    if (name !== undefined) tokens.push({ kind: KEYWORDS.has(name) ? 'word' : 'name', text: name })
    else if (number !== undefined) tokens.push({ kind: 'number', text: number })
    else if (double !== undefined || single !== undefined) tokens.push({ kind: 'text', text: unescaped((double ?? single)!) })
    else if (long !== undefined) tokens.push({ kind: 'text', text: long.replace(/^\n/, '') })
    else if (sign !== undefined) tokens.push({ kind: 'sign', text: sign })
  }
  tokens.push({ kind: 'end', text: 'the end of the script' })
  return tokens
}

const ESCAPES: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r', '\\': '\\', '"': '"', "'": "'", '0': '\0' }

function unescaped(text: string): string {
  return text.replace(/\\([\s\S])/g, (_, letter: string) => {
    const escaped = ESCAPES[letter]
    if (escaped === undefined) throw new LuaError(`"\\${letter}" in a text is not understood`)
    return escaped
  })
}

class Parser {
  readonly #tokens: readonly LuaToken[]
  #at = 0
  #depth = 0

  constructor(tokens: readonly LuaToken[]) {
    this.#tokens = tokens
  }

  whole(): Block {
    const block = this.#block()
    if (this.#next.kind !== 'end') this.#fail()
    return block
  }

  get #next(): LuaToken {
    return this.#tokens[this.#at]!
  }

  #fail(): never {
    throw new LuaError(`"${this.#next.text.slice(0, 20)}" is not understood there`)
  }

  #is(text: string): boolean {
    const { kind, text: found } = this.#next
    return (kind === 'word' || kind === 'sign') && found === text
  }

  #take(text: string): boolean {
    if (!this.#is(text)) return false
    this.#at++
    return true
  }

  #must(text: string): void {
    if (!this.#take(text)) this.#fail()
  }

  #name(): string {
    if (this.#next.kind !== 'name') this.#fail()
    return this.#tokens[this.#at++]!.text
  }

  #deeper<T>(parse: () => T): T {
    if (++this.#depth > MAX_DEPTH) throw new LuaError(`it is nested deeper than ${MAX_DEPTH}`)
    const parsed = parse()
    this.#depth--
    return parsed
  }

  #block(): Block {
    return this.#deeper(() => {
      const statements: LuaStatement[] = []
      while (!['end', 'else', 'elseif'].some(word => this.#is(word)) && this.#next.kind !== 'end') {
        if (this.#take(';')) continue
        const statement = this.#statement()
        statements.push(statement)
        if (statement.kind === 'return') break
      }
      return statements
    })
  }

  #statement(): LuaStatement {
    if (this.#take('local')) {
      const names = this.#list(() => this.#name())
      return { kind: 'local', names, values: this.#take('=') ? this.#list(() => this.#expression()) : [] }
    }
    if (this.#take('if')) return this.#if()
    if (this.#take('for')) return this.#for()
    if (this.#take('do')) return { kind: 'do', body: this.#body() }
    if (this.#take('return')) {
      const isEmpty = this.#is('end') || this.#is('else') || this.#is('elseif') || this.#is(';') || this.#next.kind === 'end'
      const value = isEmpty ? undefined : this.#expression()
      this.#take(';')
      return { kind: 'return', value }
    }
    const target = this.#suffixed()
    if (target.kind === 'call') return { kind: 'call', call: target }
    if (target.kind === 'index') {
      this.#must('=')
      return { kind: 'set', table: target.of, at: target.at, value: this.#expression() }
    }
    if (target.kind !== 'name') this.#fail()
    const names = [target.name]
    while (this.#take(',')) names.push(this.#name())
    this.#must('=')
    return { kind: 'assign', names, values: this.#list(() => this.#expression()) }
  }

  #if(): LuaStatement {
    const branches: { when: Expression | undefined; body: Block }[] = []
    for (;;) {
      const when = this.#expression()
      this.#must('then')
      branches.push({ when, body: this.#block() })
      if (this.#take('elseif')) continue
      if (this.#take('else')) branches.push({ when: undefined, body: this.#block() })
      this.#must('end')
      return { kind: 'if', branches }
    }
  }

  #for(): LuaStatement {
    const names = this.#list(() => this.#name())
    if (this.#take('in')) {
      const of = this.#expression()
      if (of.kind !== 'call' || (of.name !== 'ipairs' && of.name !== 'pairs') || of.args.length !== 1)
        throw new LuaError('for goes over ipairs(…) only')
      this.#must('do')
      return { kind: 'each', names, of: of.args[0]!, body: this.#body() }
    }
    this.#must('=')
    const from = this.#expression()
    this.#must(',')
    const to = this.#expression()
    if (this.#is(',')) throw new LuaError('for counts by one only')
    this.#must('do')
    return { kind: 'count', name: names[0]!, from, to, body: this.#body() }
  }

  #body(): Block {
    const body = this.#block()
    this.#must('end')
    return body
  }

  #list<T>(one: () => T): T[] {
    const items = [one()]
    while (this.#take(',')) items.push(one())
    return items
  }

  /** With operators that bind at least as strongly as `level`. */
  #expression(level = 0): Expression {
    return this.#deeper(() => {
      let left = this.#unary()
      for (;;) {
        const { kind, text } = this.#next
        const binding = kind === 'word' || kind === 'sign' ? BINDING.get(text) : undefined
        if (binding === undefined || binding < level) return left
        this.#at++
        left = { kind: 'binary', operator: text, left, right: this.#expression(binding + 1) }
      }
    })
  }

  #unary(): Expression {
    for (const operator of ['not', '#', '-'])
      if (this.#take(operator)) return { kind: 'unary', operator, of: this.#deeper(() => this.#unary()) }
    const { kind, text } = this.#next
    if (kind === 'text' || kind === 'number') {
      this.#at++
      return { kind: 'value', value: kind === 'text' ? text : Number(text) }
    }
    for (const [word, value] of [
      ['nil', undefined],
      ['true', true],
      ['false', false],
    ] as const)
      if (this.#take(word)) return { kind: 'value', value }
    if (this.#take('{')) {
      const items = this.#is('}') ? [] : this.#list(() => this.#expression())
      this.#must('}')
      return { kind: 'table', items }
    }
    return this.#suffixed()
  }

  #suffixed(): Expression {
    let of: Expression
    if (this.#take('(')) {
      of = this.#expression()
      this.#must(')')
    } else of = { kind: 'name', name: this.#name() }
    for (;;) {
      if (this.#take('.')) of = { kind: 'index', of, at: { kind: 'value', value: this.#name() } }
      else if (this.#take('[')) {
        of = { kind: 'index', of, at: this.#expression() }
        this.#must(']')
      } else if (this.#take('(')) {
        const args = this.#is(')') ? [] : this.#list(() => this.#expression())
        this.#must(')')
        of = { kind: 'call', name: functionName(of), args }
      } else return of
    }
  }
}

/** `redis.call` and `tonumber`: functions are called by their name only. */
function functionName(of: Expression): string {
  if (of.kind === 'name') return of.name
  if (of.kind === 'index' && of.of.kind === 'name' && of.at.kind === 'value') return `${of.of.name}.${String(of.at.value)}`
  throw new LuaError('only functions with a name are called')
}
