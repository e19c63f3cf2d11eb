/**
 * Rendezvous hashing: each candidate draws a number for a key, and the highest draw wins. A candidate that comes or goes moves only its own
 * keys. All processes must compute the same numbers, so the functions here never change.
 */

/** FNV-1a over UTF-16 code units, finalized by `mix`. */
export function hash(text: string): number {
  let h = 0x811c9dc5
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193)
  return mix(h)
}

/** Returns what the candidate with hash `candidate` draws for the key with hash `key`: a whole number from 0 to 2^32 - 1. */
export function draw(candidate: number, key: number): number {
  return mix(candidate ^ key) >>> 0
}

/** The finalizer of MurmurHash3: every bit of the input affects every bit of the result. */
function mix(h: number): number {
  let x = h
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b)
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35)
  return x ^ (x >>> 16)
}
