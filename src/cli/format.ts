/** Formatting for people: times in the local time zone, and lists of words. */
const format = new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'medium' })

export function localTime(wall: number): string {
  return format.format(wall)
}

/** `a`, `a and b`, `a, b and c`. */
export function joinWithAnd(words: readonly string[]): string {
  if (words.length < 2) return words.join('')
  return `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`
}
