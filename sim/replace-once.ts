/** Replaces text in a built file. */
import { readFileSync, writeFileSync } from 'node:fs'

/** Throws unless the text occurs exactly once: text that has moved must not silently stay unreplaced. */
export function replaceOnce(path: string, text: string, put: string): void {
  const pieces = readFileSync(path, 'utf8').split(text)
  if (pieces.length !== 2) throw new Error(`the text to replace occurs ${pieces.length - 1} times in ${path}, not once: ${text}`)
  writeFileSync(path, pieces.join(put))
}
