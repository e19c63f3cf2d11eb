/**
 * Parses large JSON bodies without blocking the event loop.
 *
 * `JSON.parse` takes about a second for four megabytes of brackets, and blocks every other client meanwhile. So a large body is first scanned, which takes a
 * few milliseconds: its values are counted, and too many are refused. The items of its lists, which make an honest body large, are then parsed one by
 * one, and the event loop runs in between.
 */
import { turn } from '../../clock.ts'
import { HttpFailure } from './failure.ts'
import { parseCounted, parseJson } from './parse.ts'

/** A body of up to this many characters is parsed at once. */
const MAX_PARSED_AT_ONCE = 64 << 10
/** Maximum values in one item of a list, or in the body outside of its lists. The largest command that the kernel accepts has about half as many. */
const MAX_VALUES = 20_000
/** Work per turn of the event loop, in characters. */
const WORK_PER_TURN = 64 << 10
/** A value costs as much work as this many characters. */
const VALUE_WORK = 16

const QUOTE = 0x22
const COMMA = 0x2c
const COLON = 0x3a
const BACKSLASH = 0x5c
const OPEN_LIST = 0x5b
const CLOSE_LIST = 0x5d
const OPEN_OBJECT = 0x7b
const CLOSE_OBJECT = 0x7d

export interface BodyLimits {
  /** Maximum nesting depth. */
  readonly depth: number
  /** Maximum items in each list. */
  readonly items: number
}

/**
 * As `parseJson`, but a long text takes several turns of the event loop: the next one begins when `nextTurn` resolves. Throws `LIMIT` for a list with too many
 * items, `TOO_LARGE` for too many values.
 */
export async function parseBody(text: string, limits: BodyLimits, nextTurn: () => Promise<void> = turn): Promise<unknown> {
  return text.length <= MAX_PARSED_AT_ONCE ? parseJson(text, limits.depth) : new LargeBody(text, limits).parse(nextTurn)
}

class LargeBody {
  readonly #text: string
  readonly #limits: BodyLimits
  readonly #lists: unknown[][] = []
  /** The text without the items of its lists. Each list contains its index in `#lists` instead. */
  #outside = ''
  #level = 0
  /** Values and fields in the item that is being scanned, and outside of the lists. */
  #values = 0
  #valuesOutside = 0
  #fields = 0
  #fieldsOutside = 0
  /** Characters of the text that are in `#outside` or in a list. */
  #copied = 0
  /** Where the item that is being scanned starts; -1 outside of lists. */
  #item = -1
  #work = 0

  constructor(text: string, limits: BodyLimits) {
    this.#text = text
    this.#limits = limits
  }

  async parse(nextTurn: () => Promise<void>): Promise<unknown> {
    const text = this.#text
    let quoted = false
    for (let at = 0; at < text.length; at++) {
      if (quoted) {
        const quote = nextQuote(text, at)
        quoted = isEscaped(text, quote)
        this.#work += quote - at
        at = quote
      } else if (text.charCodeAt(at) === QUOTE) quoted = true
      else this.#scan(text.charCodeAt(at), at)
      if (++this.#work < WORK_PER_TURN) continue
      this.#work = 0
      await nextTurn()
    }
    this.#outside += text.slice(this.#copied)
    return this.#assemble(parseCounted(this.#outside, this.#limits.depth, this.#fieldsOutside))
  }

  #scan(character: number, at: number): void {
    const inList = this.#item >= 0
    switch (character) {
      case COLON:
        this.#work += VALUE_WORK
        if (inList) this.#fields++
        else this.#fieldsOutside++
        return
      case COMMA:
        this.#countValue()
        if (inList && this.#level === 2) this.#endItem(at)
        return
      case OPEN_LIST:
      case OPEN_OBJECT:
        this.#countValue()
        if (++this.#level > this.#limits.depth) throw tooDeep()
        if (this.#level === 2 && character === OPEN_LIST) this.#beginList(at)
        return
      case CLOSE_LIST:
      case CLOSE_OBJECT:
        if (inList && this.#level === 2) {
          this.#endItem(at)
          this.#item = -1
          this.#copied = at
        }
        this.#level--
    }
  }

  #beginList(at: number): void {
    this.#outside += `${this.#text.slice(this.#copied, at + 1)}${this.#lists.length}`
    this.#lists.push([])
    this.#item = at + 1
    this.#values = 0
    this.#fields = 0
  }

  #countValue(): void {
    this.#work += VALUE_WORK
    const values = this.#item >= 0 ? ++this.#values : ++this.#valuesOutside
    if (values > MAX_VALUES)
      throw new HttpFailure('TOO_LARGE', `the body has more than ${MAX_VALUES} values in one item, the limit`, {
        facts: { limit: MAX_VALUES },
      })
  }

  /** Parses the item that ends before `end`. */
  #endItem(end: number): void {
    const { depth, items } = this.#limits
    const list = this.#lists.at(-1)!
    const text = this.#text.slice(this.#item, end)
    const isLast = this.#text.charCodeAt(end) !== COMMA
    const fields = this.#fields
    this.#item = end + 1
    this.#values = 0
    this.#fields = 0
    // An empty list. Nothing after a comma is an error, which the parser reports.
    if (isLast && list.length === 0 && text.trim() === '') return
    if (list.length === items)
      throw new HttpFailure('LIMIT', `a list in the body has more than ${items} items, the limit: send several requests`, {
        facts: { limit: items },
      })
    list.push(parseCounted(text, depth - 2, fields))
  }

  /** Puts the parsed lists where the value outside of them has their indexes. */
  #assemble(value: unknown): unknown {
    if (this.#lists.length === 0) return value
    // The body is a list of lists. No route accepts one.
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      throw new HttpFailure('INVALID', 'the body: it must be an object')
    const body = value as Record<string, unknown>
    for (const field of Object.keys(body)) {
      const given = body[field]
      if (Array.isArray(given)) body[field] = this.#lists[given[0] as number]
    }
    return body
  }
}

/** The next quote, or the end of the text. */
function nextQuote(text: string, at: number): number {
  const quote = text.indexOf('"', at)
  return quote < 0 ? text.length : quote
}

function isEscaped(text: string, quote: number): boolean {
  let before = quote - 1
  while (text.charCodeAt(before) === BACKSLASH) before--
  return (quote - before) % 2 === 0
}

function tooDeep(): HttpFailure {
  return new HttpFailure('TOO_LARGE', 'the body is nested too deeply: see the limit depth')
}
