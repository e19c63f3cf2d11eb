/** The dashboard writes values in these forms: durations, times, long numbers and colours of names. Pure, so that tests can run it without a browser. */

/** `350 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`, `5 d 3 h`. */
export function duration(ms: number): string {
  const whole = Math.max(0, ms)
  if (whole < 1_000) return `${Math.round(whole)} ms`
  if (whole < 59_950) return `${(whole / 1_000).toFixed(1)} s`
  const seconds = Math.round(whole / 1_000)
  if (seconds < 3_600) return pair(Math.floor(seconds / 60), 'min', seconds % 60, 's')
  const minutes = Math.round(seconds / 60)
  if (minutes < 1_440) return pair(Math.floor(minutes / 60), 'h', minutes % 60, 'min')
  const hours = Math.round(minutes / 60)
  return pair(Math.floor(hours / 24), 'd', hours % 24, 'h')
}

function pair(large: number, unit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large} ${unit}` : `${large} ${unit} ${small} ${smallUnit}`
}

/** As `duration`, without digits that change several times a second. */
export function calmDuration(ms: number): string {
  return ms < 1_000 ? '0 s' : ms < 60_000 ? `${Math.floor(ms / 1_000)} s` : duration(Math.floor(ms / 1_000) * 1_000)
}

/** A wall time as `2026-11-16 08:15:30.250 UTC`. */
export function exactTime(at: number): string {
  const date = new Date(at)
  return Number.isNaN(date.getTime()) ? String(at) : `${date.toISOString().replace('T', ' ').replace('Z', '')} UTC`
}

/** A wall time as the time of day of the reader: `08:15:30`. */
export function timeOfDay(at: number): string {
  const date = new Date(at)
  if (Number.isNaN(date.getTime())) return String(at)
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(part => String(part).padStart(2, '0')).join(':')
}

/** The last digits of a token, revision or lease id that has many: `…48213`. */
export function shortNumber(value: number): string {
  const text = String(value)
  return text.length <= 7 ? text : `…${text.slice(-5)}`
}

const SIGNALS: Readonly<Record<number, string>> = {
  1: 'HUP',
  2: 'INT',
  3: 'QUIT',
  6: 'ABRT',
  9: 'KILL',
  11: 'SEGV',
  13: 'PIPE',
  15: 'TERM',
}

/** Returns what an exit code says by the custom of shells: 137 is 128 + 9, ended by KILL. Empty for other codes. */
export function signalOf(exit: number): string {
  const signal = exit - 128
  return signal < 1 || signal > 64 ? '' : `128 + ${signal}: ended by signal ${SIGNALS[signal] ?? signal}`
}

/** `12,345`. */
export function count(value: number): string {
  return Math.round(value).toLocaleString('en-US')
}

export const HUES = 10

/** One of `HUES` colours, the same for a name everywhere and at any time. */
export function hueOf(name: string): number {
  let hash = 2_166_136_261
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 16_777_619)
  return (hash >>> 0) % HUES
}

/** A colour for each account: that of its name, or the next free one if another account of the pool has it, so that no two of a few look the same. */
export function accountHues(accounts: readonly string[]): ReadonlyMap<string, number> {
  const hues = new Map<string, number>()
  const taken = new Set<number>()
  for (const account of [...accounts].sort()) {
    let hue = hueOf(account)
    while (taken.has(hue) && taken.size < HUES) hue = (hue + 1) % HUES
    taken.add(hue)
    hues.set(account, hue)
  }
  return hues
}

/** Makes characters visible that would hide or reverse the text around them. */
export function visible(text: string): string {
  // Most names are plain. This is a small part of the cost of the replacement, and many names are shown at once.
  if (/^[\x20-\x7e]*$/.test(text)) return text
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, found => `\\u${found.codePointAt(0)!.toString(16).padStart(4, '0')}`)
}

/** Returns whether `name` is `prefix` or below it, by whole segments. */
export function isUnder(prefix: string, name: string): boolean {
  const whole = prefix.replace(/\/+$/, '')
  return whole === '' || name === whole || name.startsWith(`${whole}/`)
}

/** A name as the rest of a path, each segment escaped. */
export function pathOf(name: string): string {
  return name.split('/').map(encodeURIComponent).join('/')
}

/** Whole milliseconds of a text such as `30s` or `1h30m`; undefined if it is none. A bare number is seconds. */
export function parseTime(text: string): number | undefined {
  const trimmed = text.trim().toLowerCase()
  if (/^\d+(\.\d+)?$/.test(trimmed)) return Math.round(Number(trimmed) * 1_000)
  if (!/^(\d+(\.\d+)?\s*(ms|s|m|h|d)\s*)+$/.test(trimmed)) return undefined
  const units: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }
  let ms = 0
  for (const [, amount, unit] of trimmed.matchAll(/(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)/g)) ms += Number(amount) * units[unit!]!
  return Math.round(ms)
}
