/** Several prefixes at once: what a key may see, and what is asked for. */
import { normalPrefix, under } from './name.ts'

/** So few are tried one after another. */
const FEW = 4

/** Whether a name is under one of them. Costs the same for ten and for ten thousand. */
export function among(prefixes: readonly string[]): (name: string) => boolean {
  const plain = new Set(prefixes.map(normalPrefix))
  if (plain.has('')) return () => true
  if (plain.size <= FEW) {
    const few = [...plain]
    return name => {
      for (const prefix of few) if (under(prefix, name)) return true
      return false
    }
  }
  return name => {
    for (let end = name.indexOf('/'); end >= 0; end = name.indexOf('/', end + 1)) if (plain.has(name.slice(0, end))) return true
    return plain.has(name)
  }
}

/** What is under one of these as well as under one of those; none of the answer is under another of it. */
export function common(these: readonly string[], those: readonly string[]): readonly string[] {
  const both = new Set([...these.filter(among(those)), ...those.filter(among(these))].map(normalPrefix))
  if (both.has('')) return ['']
  return [...both].filter(prefix => {
    for (let end = prefix.indexOf('/'); end >= 0; end = prefix.indexOf('/', end + 1)) if (both.has(prefix.slice(0, end))) return false
    return true
  })
}
