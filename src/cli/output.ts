/**
 * What the commands print: data on stdout, words on stderr. Names come from strangers, so nothing of them reaches a terminal that could move
 * its cursor, change its colours or turn its text around.
 */
import { closeSync, writeSync } from 'node:fs'
import { isatty } from 'node:tty'
import { CONTROL_CHARACTERS } from '../server/control-characters.ts'

/** For people: in the place of each such character stands a sign that something was there, or two names could look like one. */
export function clean(text: string): string {
  return text.replace(CONTROL_CHARACTERS, '\ufffd')
}

/** For programs: exact, and harmless on a terminal all the same. */
export function jsonLine(value: unknown): string {
  return JSON.stringify(value).replace(CONTROL_CHARACTERS, found =>
    Array.from({ length: found.length }, (_, i) => `\\u${found.charCodeAt(i).toString(16).padStart(4, '0')}`).join(''),
  )
}

export type Row = readonly (string | number)[]

/** Columns that fit their widest cell; the last one is left as long as it is. */
export function table(head: readonly string[], rows: readonly Row[], { bold = false }: { readonly bold?: boolean } = {}): string {
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

/** In characters. What an East Asian terminal shows wider is one column off, and harms nothing. */
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

  /** Whether stdout takes colours: https://no-color.org */
  get colour(): boolean {
    const { NO_COLOR = '', TERM } = this.#env
    return NO_COLOR === '' && TERM !== 'dumb' && isatty(1)
  }

  /** One object a line. */
  data(value: unknown): Promise<void> {
    return print(`${jsonLine(value)}\n`)
  }

  /** Lines for people: whoever calls has cleaned what came from strangers. */
  text(text: string): Promise<void> {
    return print(`${text}\n`)
  }

  table(head: readonly string[], rows: readonly Row[]): Promise<void> {
    return this.text(table(head, rows, { bold: this.colour }))
  }

  /** Words: on stderr, in the words of a program when it asked for JSON. */
  note(sentence: string, facts: Readonly<Record<string, unknown>> = {}): void {
    say(this.json ? jsonLine({ note: sentence, ...facts }) : `leasehold: ${clean(sentence)}`)
  }
}

/** Resolves when there is room for more: a list of a million leases goes through a slow pipe without being kept in memory. */
function print(text: string): Promise<void> {
  return new Promise(resolve => {
    if (process.stdout.write(text)) resolve()
    else process.stdout.once('drain', resolve)
  })
}

/**
 * Straight to the descriptor: `process.stderr` would make a pipe that we share with a child non-blocking, and the child's own writes would
 * fail with EAGAIN.
 */
export function say(line: string): void {
  write(`${line}\n`)
}

export function write(text: string): void {
  const bytes = Buffer.from(text)
  for (let at = 0, tries = 0; at < bytes.length && tries < 1_000; tries++) {
    try {
      at += writeSync(2, bytes, at)
    } catch (error) {
      // Whoever read our words has gone, or does not keep up: that is no reason to fail.
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') return
    }
  }
}

/** `| head` has seen enough: that is no failure. Neither is a terminal that has gone: whoever had it is told by a hangup. */
export function onStdoutError(fail: (error: NodeJS.ErrnoException) => number): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    const unread = error.code === 'EPIPE' || error.code === 'EIO'
    process.exit(unread ? (process.exitCode ?? 0) : fail(error))
  })
}

/**
 * When it ends, Node gives back each terminal as it was, and aborts when that fails, as on one that has gone. What is closed it leaves alone.
 */
export function leaveGoneTerminals(): void {
  const terminals = [0, 1, 2].filter(fd => isatty(fd))
  process.on('exit', () => {
    for (const fd of terminals) if (!isatty(fd)) closeSync(fd)
  })
}
