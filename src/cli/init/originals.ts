/**
 * The text that a file had before `init` wrote to it. Kept in the state folder of the user, for files that taking our parts out would not give back (an empty object that was
 * there before, spacing inside of it), so that `--remove` restores every byte.
 */
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { userUrl } from '../../connect/url.ts'

interface Original {
  readonly before: string
  readonly after: string
}

/** The text before ours, if the file is still as `init` left it. */
export function originalOf(path: string, present: string | undefined): string | undefined {
  const file = fileFor(path)
  if (present === undefined || !existsSync(file)) return undefined
  try {
    const { before, after } = JSON.parse(readFileSync(file, 'utf8')) as Original
    return after === present ? before : undefined
  } catch {
    return undefined // damaged: our parts are taken out of the text, as without it
  }
}

export function keepOriginal(path: string, original: Original): void {
  const file = fileFor(path)
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
  writeFileSync(file, JSON.stringify(original), { mode: 0o600 })
}

export function forgetOriginal(path: string): void {
  rmSync(fileFor(path), { force: true })
}

function fileFor(path: string): string {
  const folder = dirname(userUrl().slice('file:'.length))
  return join(folder, 'init', `${createHash('sha256').update(path).digest('hex').slice(0, 32)}.json`)
}
