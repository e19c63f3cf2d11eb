/**
 * Large JSON bodies, parsed without a long turn of the event loop.
 *
 * `JSON.parse` takes about a second for four megabytes of brackets, and nobody is served meanwhile. So a large body is first scanned for what it has how
 * many of, which costs a few milliseconds, and is refused where that is too much. The items of its lists, which are what makes an honest body large, are
 * then parsed one by one, with turns of the loop in between.
 */
import { turn } from '../../clock.ts'
import { Failure } from './failure.ts'
import { parseCounted, parseJson } from './parse.ts'

/** Characters that are parsed in one go, whatever they are. */
const WHOLE = 64 << 10
/** Values in one item of a list, or in a body around its lists. The largest command that the kernel accepts has about half as many. */
const MAX_VALUES = 20_000
/** Characters and values that are looked at in one turn; a value costs as much as so many characters. */
const STRIDE = 128 << 10
const VALUE = 16

const QUOTE = 0x22
const COMMA = 0x2c
const COLON = 0x3a
const BACKSLASH = 0x5c
const OPEN_LIST = 0x5b
const CLOSE_LIST = 0x5d
const OPEN_OBJECT = 0x7b
const CLOSE_OBJECT = 0x7d

export interface BodyBounds {
  /** How deep it may be nested. */
  readonly depth: number
  /** Items in each of its lists. */
  readonly items: number
}

/** As `parseJson`, in several turns where the text is long. Throws `LIMIT` or `TOO_LARGE` for what has too many parts. */
export async function parseBody(text: string, bounds: BodyBounds): Promise<unknown> {
  return text.length <= WHOLE ? parseJson(text, bounds.depth) : new LargeBody(text, bounds).parse()
}

class LargeBody {
  readonly #text: string
  readonly #bounds: BodyBounds
  readonly #lists: unknown[][] = []
  /** The text without the items of its lists: each list has its number in `#lists` instead. */
  #around = ''
  #level = 0
  /** Values seen in the item that is being scanned, and around the lists. */
  #values = 0
  #valuesAround = 0
  #fields = 0
  #fieldsAround = 0
  /** How much of the text is in `#around`. */
  #copied = 0
  /** Where the item that is being scanned begins; -1 outside of lists. */
  #item = -1
  #work = 0

  constructor(text: string, bounds: BodyBounds) {
    this.#text = text
    this.#bounds = bounds
  }

  async parse(): Promise<unknown> {
    const text = this.#text
    let quoted = false
    for (let at = 0; at < text.length; at++) {
      if (quoted) {
        const quote = nextQuote(text, at)
        quoted = isEscaped(text, quote)
        this.#work += quote - at
        at = quote
      } else if (text.charCodeAt(at) === QUOTE) quoted = true
      else this.#see(text.charCodeAt(at), at)
      if (++this.#work < STRIDE) continue
      this.#work = 0
      await turn()
    }
    this.#around += text.slice(this.#copied)
    return this.#together(parseCounted(this.#around, this.#bounds.depth, this.#fieldsAround))
  }

  #see(sign: number, at: number): void {
    const inList = this.#item >= 0
    switch (sign) {
      case COLON:
        this.#work += VALUE
        if (inList) this.#fields++
        else this.#fieldsAround++
        return
      case COMMA:
        this.#count()
        if (inList && this.#level === 2) this.#take(at)
        return
      case OPEN_LIST:
      case OPEN_OBJECT:
        this.#count()
        if (++this.#level > this.#bounds.depth) throw tooDeep()
        if (this.#level === 2 && sign === OPEN_LIST) this.#begin(at)
        return
      case CLOSE_LIST:
      case CLOSE_OBJECT:
        if (inList && this.#level === 2) {
          this.#take(at)
          this.#item = -1
          this.#copied = at
        }
        this.#level--
    }
  }

  #begin(at: number): void {
    this.#around += `${this.#text.slice(this.#copied, at + 1)}${this.#lists.length}`
    this.#lists.push([])
    this.#item = at + 1
    this.#values = 0
    this.#fields = 0
  }

  #count(): void {
    this.#work += VALUE
    const values = this.#item >= 0 ? ++this.#values : ++this.#valuesAround
    if (values > MAX_VALUES)
      throw new Failure('TOO_LARGE', `the body has more than ${MAX_VALUES} values in one place, as many as are allowed`, {
        facts: { limit: MAX_VALUES },
      })
  }

  /** The item that ends here. */
  #take(end: number): void {
    const { depth, items } = this.#bounds
    const list = this.#lists.at(-1)!
    const text = this.#text.slice(this.#item, end)
    const isLast = this.#text.charCodeAt(end) !== COMMA
    const fields = this.#fields
    this.#item = end + 1
    this.#values = 0
    this.#fields = 0
    // A list of nothing. After a comma nothing is a mistake, which the parser reports.
    if (isLast && list.length === 0 && text.trim() === '') return
    if (list.length === items)
      throw new Failure('LIMIT', `a list in the body has more than ${items} items, as many as are allowed`, { facts: { limit: items } })
    list.push(parseCounted(text, depth - 2, fields))
  }

  #together(value: unknown): unknown {
    if (this.#lists.length === 0) return value
    // Lists of lists: no route takes them.
    if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Failure('INVALID', 'the body: it must be an object')
    const body = value as Record<string, unknown>
    for (const field of Object.keys(body)) {
      const given = body[field]
      if (Array.isArray(given)) body[field] = this.#lists[given[0] as number]
    }
    return body
  }
}

/** The end of the text when there is none. */
function nextQuote(text: string, at: number): number {
  const quote = text.indexOf('"', at)
  return quote < 0 ? text.length : quote
}

function isEscaped(text: string, quote: number): boolean {
  let before = quote - 1
  while (text.charCodeAt(before) === BACKSLASH) before--
  return (quote - before) % 2 === 0
}

function tooDeep(): Failure {
  return new Failure('TOO_LARGE', 'the body is nested deeper than is allowed: the limit is called depth')
}
