/** Formatting for people: times in the local time zone, counts and lists of words. */

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

/** `1 lease`, `2 leases`, `3 policies`. */
export function counted(count: number, noun: string): string {
  if (count === 1) return `1 ${noun}`
  return `${count} ${noun.endsWith('y') && !noun.endsWith('ey') ? `${noun.slice(0, -1)}ies` : `${noun}s`}`
}
