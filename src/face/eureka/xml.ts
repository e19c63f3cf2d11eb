/** The little XML that Eureka clients send and read: elements, attributes and text. No document types, no entities of their own, no namespaces. */
import { TextFailure } from '../text-failure.ts'

const MAX_DEPTH = 16
const MAX_ELEMENTS = 2_000
const NAME = /[A-Za-z_][\w.-]*/y

export interface XmlElement {
  readonly name: string
  readonly attributes: Readonly<Record<string, string>>
  readonly children: readonly XmlElement[]
  readonly text: string
}

/** The root element of a text. Throws `TextFailure` for anything but well-formed XML of this kind. */
export function parseXml(text: string): XmlElement {
  return new XmlReader(text).document()
}

class XmlReader {
  readonly #text: string
  #at = 0
  #elements = 0

  constructor(text: string) {
    this.#text = text
  }

  document(): XmlElement {
    this.#skipSpace()
    if (this.#text.startsWith('<?xml', this.#at)) this.#at = this.#find('?>') + 2
    this.#skipMisc()
    const root = this.#element(1)
    this.#skipMisc()
    if (this.#at < this.#text.length) throw wrong('there is text after the root element')
    return root
  }

  #skipMisc(): void {
    for (this.#skipSpace(); this.#text.startsWith('<!--', this.#at); this.#skipSpace()) this.#at = this.#find('-->') + 3
  }

  #skipSpace(): void {
    while (/\s/.test(this.#text[this.#at] ?? 'x')) this.#at++
  }

  #find(what: string): number {
    const found = this.#text.indexOf(what, this.#at)
    if (found < 0) throw wrong(`${what} is missing`)
    return found
  }

  #name(): string {
    NAME.lastIndex = this.#at
    const found = NAME.exec(this.#text)?.[0]
    if (found === undefined || found.length > 256) throw wrong('a name is missing')
    this.#at += found.length
    return found
  }

  #expect(what: string): void {
    if (!this.#text.startsWith(what, this.#at)) throw wrong(`${what} is missing`)
    this.#at += what.length
  }

  #element(depth: number): XmlElement {
    if (depth > MAX_DEPTH) throw wrong(`there are more than ${MAX_DEPTH} levels`)
    if (++this.#elements > MAX_ELEMENTS) throw wrong(`there are more than ${MAX_ELEMENTS} elements`)
    this.#expect('<')
    const name = this.#name()
    const attributes = this.#attributes()
    const element = { name, attributes, children: [] as XmlElement[], text: '' }
    if (this.#text.startsWith('/>', this.#at)) {
      this.#at += 2
      return element
    }
    this.#expect('>')
    for (;;) {
      const next = this.#find('<')
      element.text += unescaped(this.#text.slice(this.#at, next))
      this.#at = next
      if (this.#text.startsWith('</', next)) break
      if (this.#text.startsWith('<!--', next)) this.#at = this.#find('-->') + 3
      else if (this.#text.startsWith('<![CDATA[', next)) {
        const end = this.#find(']]>')
        element.text += this.#text.slice(next + 9, end)
        this.#at = end + 3
      } else element.children.push(this.#element(depth + 1))
    }
    this.#expect('</')
    if (this.#name() !== name) throw wrong(`the end of ${name} is missing`)
    this.#skipSpace()
    this.#expect('>')
    return element
  }

  #attributes(): Record<string, string> {
    const attributes = Object.create(null) as Record<string, string>
    for (this.#skipSpace(); !/[/>]/.test(this.#text[this.#at] ?? '>'); this.#skipSpace()) {
      const name = this.#name()
      this.#skipSpace()
      this.#expect('=')
      this.#skipSpace()
      const quote = this.#text[this.#at]
      if (quote !== '"' && quote !== "'") throw wrong('a quote is missing')
      this.#at++
      const end = this.#find(quote)
      attributes[name] = unescaped(this.#text.slice(this.#at, end))
      this.#at = end + 1
    }
    return attributes
  }
}

function wrong(why: string): TextFailure {
  return new TextFailure(400, `the XML cannot be read: ${why}`)
}

const ENTITIES: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" }

function unescaped(text: string): string {
  return text.replace(/&(#x[0-9a-f]{1,6}|#\d{1,7}|\w{1,8});|&/gi, (whole, name: string | undefined) => {
    const known = name === undefined ? undefined : ENTITIES[name]
    if (known !== undefined) return known
    if (name?.startsWith('#') !== true) throw wrong(`there is no entity ${whole.slice(0, 16)}`)
    const code = /^#x/i.test(name) ? Number.parseInt(name.slice(2), 16) : Number(name.slice(1))
    if (!(code > 0 && code <= 0x10ffff) || (code >= 0xd800 && code < 0xe000)) throw wrong(`${whole} is not a character`)
    return String.fromCodePoint(code)
  })
}

function escaped(text: string): string {
  return text.replace(/[<>&"']/g, char => `&#${char.charCodeAt(0)};`)
}

/** Writes the JSON form of Eureka as XML: `@name` is an attribute, `$` the text of an element, and a list repeats its element. */
export function toXml(name: string, value: unknown): string {
  if (Array.isArray(value)) return value.map(item => toXml(name, item)).join('')
  // Metadata may have names that XML does not.
  if (!/^[A-Za-z_][\w.-]*$/.test(name)) return ''
  if (typeof value !== 'object' || value === null) return `<${name}>${escaped(String(value ?? ''))}</${name}>`
  const fields = Object.entries(value)
  const attributes = fields
    .filter(([field]) => field.startsWith('@'))
    .map(([field, text]) => ` ${field.slice(1)}="${escaped(String(text))}"`)
  const content = fields
    .filter(([field]) => !field.startsWith('@'))
    .map(([field, inner]) => (field === '$' ? escaped(String(inner)) : toXml(field, inner)))
  return `<${name}${attributes.join('')}>${content.join('')}</${name}>`
}
