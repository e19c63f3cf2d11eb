/**
 * Commands print data on stdout and messages on stderr. Names are chosen by other users, so characters that would move the cursor, change
 * colours or reverse the text direction never reach the terminal.
 */
import { closeSync, writeSync } from 'node:fs'
import { isatty } from 'node:tty'
import { CONTROL_CHARACTERS } from '../server/control-characters.ts'

/** For people: replaces each control character by a visible sign. Without the sign, two different names could look the same. */
export function clean(text: string): string {
  return text.replace(CONTROL_CHARACTERS, '\ufffd')
}

/** For programs: escapes control characters, so the value is exact and still harmless on a terminal. */
export function jsonLine(value: unknown): string {
  return JSON.stringify(value).replace(CONTROL_CHARACTERS, found =>
    Array.from({ length: found.length }, (_, i) => `\\u${found.charCodeAt(i).toString(16).padStart(4, '0')}`).join(''),
  )
}

export type TableRow = readonly (string | number)[]

/** Pads columns to their widest cell. The last column is not padded. */
export function table(head: readonly string[], rows: readonly TableRow[], { bold = false }: { readonly bold?: boolean } = {}): string {
  const cells = rows.map(row => row.map(cell => clean(String(cell))))
  const widths = head.map((title, i) => cells.reduce((widest, row) => Math.max(widest, width(row[i] ?? '')), title.length))
  const line = (row: readonly string[]) =>
    row
      .map((cell, i) => (i === row.length - 1 ? cell : cell + ' '.repeat(widths[i]! - width(cell))))
      .join('  ')
      .trimEnd()
  const title = line(head)
  return [bold ? `\u001b[1m${title}\u001b[0m` : title, ...cells.map(line)].join('\n')
}

/** In characters. Wide East Asian characters make a column uneven, which is harmless. */
function width(text: string): number {
  return text.length < 256 ? [...text].length : text.length
}

export interface OutputOptions {
  readonly json: boolean
  readonly env?: Readonly<Record<string, string | undefined>>
}

export class Output {
  readonly json: boolean
  readonly #env: Readonly<Record<string, string | undefined>>

  constructor({ json, env = process.env }: OutputOptions) {
    this.json = json
    this.#env = env
  }

  /** Returns whether to print colours on stdout: https://no-color.org */
  get colour(): boolean {
    const { NO_COLOR = '', TERM } = this.#env
    return NO_COLOR === '' && TERM !== 'dumb' && isatty(1)
  }

  /** Prints one JSON object on a line. */
  data(value: unknown): Promise<void> {
    return print(`${jsonLine(value)}\n`)
  }

  /** Prints lines for people. The caller has cleaned names and values. */
  text(text: string): Promise<void> {
    return print(`${text}\n`)
  }

  table(head: readonly string[], rows: readonly TableRow[]): Promise<void> {
    return this.text(table(head, rows, { bold: this.colour }))
  }

  /** Prints a message on stderr; with --json, an object with the message and the facts. */
  note(sentence: string, facts: Readonly<Record<string, unknown>> = {}): void {
    writeStderrLine(this.json ? jsonLine({ note: sentence, ...facts }) : `leasehold: ${clean(sentence)}`)
  }
}

/** Resolves when stdout accepts more, so a list of a million leases goes through a slow pipe without filling the memory. */
function print(text: string): Promise<void> {
  return new Promise(resolve => {
    if (process.stdout.write(text)) resolve()
    else process.stdout.once('drain', resolve)
  })
}

/**
 * Writes directly to the descriptor. `process.stderr` would make a pipe that a child shares non-blocking, and the child's writes would fail with
 * EAGAIN.
 */
export function writeStderrLine(line: string): void {
  writeStderr(`${line}\n`)
}

export function writeStderr(text: string): void {
  const bytes = Buffer.from(text)
  for (let at = 0, tries = 0; at < bytes.length && tries < 1_000; tries++) {
    try {
      at += writeSync(2, bytes, at)
    } catch (error) {
      // The reader of stderr has gone or does not keep up. That must not fail the command.
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') return
    }
  }
}

/** A closed pipe (`| head`) is no failure, and neither is a closed terminal, which sends a hangup anyway. */
export function onStdoutError(fail: (error: NodeJS.ErrnoException) => number): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    const closed = error.code === 'EPIPE' || error.code === 'EIO'
    process.exit(closed ? (process.exitCode ?? 0) : fail(error))
  })
}

/**
 * At exit, Node restores the modes of each terminal and aborts the process when that fails, as it does on a terminal that is gone. Node skips
 * descriptors that are closed.
 */
export function closeGoneTerminals(): void {
  const terminals = [0, 1, 2].filter(fd => isatty(fd))
  process.on('exit', () => {
    for (const fd of terminals) if (!isatty(fd)) closeSync(fd)
  })
}
