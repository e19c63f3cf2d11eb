// Results on disk: one file per group, with each part as it was measured last. A quick run never replaces a full one.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const RESULTS = fileURLToPath(new URL('./results', import.meta.url))

/** The results of a group, or undefined. */
export function readResults(group, folder = RESULTS) {
  const file = join(folder, `${group}.json`)
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : undefined
}

/**
 * Writes what the parts of a group measured, `{ part: { at, quick, machine, seconds, rows } }`, over what they measured before.
 * Returns the parts that were kept, because a quick run does not replace a full one.
 */
export function writeResults(group, title, parts, folder = RESULTS) {
  mkdirSync(folder, { recursive: true })
  const before = readResults(group, folder)?.parts ?? {}
  const kept = Object.keys(parts).filter(part => parts[part].quick && before[part]?.quick === false)
  const measured = Object.fromEntries(Object.entries(parts).filter(([part]) => !kept.includes(part)))
  writeFileSync(join(folder, `${group}.json`), `${JSON.stringify({ group, title, parts: { ...before, ...measured } }, null, 2)}\n`)
  return kept
}
