import { describe, expect, test } from 'vitest'
import { CommandParser } from '../../../src/wire/resp/command-parser.ts'

describe('a command on one line', () => {
  const words = (line: string): string[] => {
    const parser = new CommandParser({ bytes: 4_096, args: 64 })
    const bytes = Buffer.from(`${line}\r\n`, 'latin1')
    const before = Buffer.from(bytes)
    parser.feed(bytes)
    expect(parser.next()).toBe(true)
    // The parser must not change the caller's bytes.
    expect(bytes).toEqual(before)
    return Array.from({ length: parser.count }, (_, i) => parser.bytes(i).toString('latin1'))
  }

  test.each([
    ['a b  c\td ', ['a', 'b', 'c', 'd']],
    ['  a', ['a']],
    [`a "b c" 'd e'`, ['a', 'b c', 'd e']],
    [`a "" ''`, ['a', '', '']],
    [`a"b c" d`, ['ab c', 'd']],
    [String.raw`a "\x41\n\r\t\b\a\q\\\""`, ['a', 'A\n\r\t\b\x07q\\"']],
    [String.raw`a '\'\n\x41"'`, ['a', String.raw`'\n\x41"`]],
    [String.raw`a "\x4" "\xzz"`, ['a', 'x4', 'xzz']],
  ])('is split as Redis does: %s', (line, expected) => expect(words(line)).toEqual(expected))

  test.each([`a "b`, `a 'b`, `a "b"c`, `a 'b'"c"`, String.raw`a "b\"`, String.raw`a 'b\'`])('%s has unbalanced quotes', line =>
    expect(() => words(line)).toThrow(/unbalanced quotes/),
  )

  test('is followed by other commands, however the bytes are split', () => {
    const bytes = Buffer.from(`PING "a b"\r\n*1\r\n$4\r\nPING\r\nECHO 'c d'\r\nPING\r\n`)
    for (let step = 1; step <= bytes.length; step++) {
      const parser = new CommandParser({ bytes: 4_096, args: 64 })
      const found: string[] = []
      for (let at = 0; at < bytes.length; at += step) {
        parser.feed(Buffer.from(bytes.subarray(at, at + step)))
        while (parser.next()) found.push(Array.from({ length: parser.count }, (_, i) => parser.bytes(i).toString()).join('|'))
        parser.keep()
      }
      expect(found, String(step)).toEqual(['PING|a b', 'PING', 'ECHO|c d', 'PING'])
      expect(parser.rest).toBe(0)
    }
  })
})
