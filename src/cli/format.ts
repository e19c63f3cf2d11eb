/** Formatting for people: times in the local time zone, and lists of words. */

/** Made at its first use: that takes a tenth of the CPU time of a command, and most commands print no time. */
let format: Intl.DateTimeFormat | undefined

export function localTime(wall: number): string {
  format ??= new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'medium' })
  return format.format(wall)
}

/** `a`, `a and b`, `a, b and c`. */
export function joinWithAnd(words: readonly string[]): string {
  if (words.length < 2) return words.join('')
  return `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`
}
