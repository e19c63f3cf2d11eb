import { readFileSync, writeFileSync } from 'node:fs'

/** Text that is not there exactly once is a failure: what was to be replaced has moved, and nothing would be. */
export function replaceOnce(path: string, text: string, put: string): void {
  const pieces = readFileSync(path, 'utf8').split(text)
  if (pieces.length !== 2) throw new Error(`the text to break in ${path} is there ${pieces.length - 1} times, not once: ${text}`)
  writeFileSync(path, pieces.join(put))
}
