import { describe, expect, test } from 'vitest'
import { CommandParser } from '../../../src/wire/resp/command-parser.ts'
import { Push, type Reply, ReplyParser } from '../../../src/wire/resp/reply-parser.ts'
import { RespWriter } from '../../../src/wire/resp/writer.ts'

function read(writer: RespWriter): Reply[] {
  const replies: Reply[] = []
  new ReplyParser().feed(writer.taken(), reply => replies.push(reply instanceof Uint8Array ? Buffer.from(reply).toString() : reply))
  return replies
}

test('every whole number is written as it is', () => {
  const writer = new RespWriter()
  const numbers = [
    0,
    1,
    9,
    10,
    99_999_999,
    100_000_000,
    100_000_001,
    123_456_789,
    1_000_000_000_000_000,
    179_472_266_392_045,
    Number.MAX_SAFE_INTEGER,
  ]
  for (const n of numbers) {
    writer.integer(n)
    writer.integer(-n)
  }
  expect(read(writer)).toEqual(numbers.flatMap(n => [n, n === 0 ? 0 : -n]))
})

test('texts of every length and alphabet, maps, pushes and null, in both protocols', () => {
  const texts = ['', 'a', 'é', '\r\n', 'x'.repeat(255), 'x'.repeat(256), '😀'.repeat(200), 'ü'.repeat(70_000)]
  for (const protocol of [2, 3] as const) {
    const writer = new RespWriter()
    writer.protocol = protocol
    for (const text of texts) writer.text(text)
    expect(read(writer)).toEqual(texts)
    writer.map(1)
    writer.text('a')
    writer.null()
    writer.push(1)
    writer.integer(5)
    const [map, push] = read(writer)
    expect(protocol === 3 ? [...(map as Map<Reply, Reply>)] : [(map as Reply[]).map(String)]).toEqual(
      protocol === 3 ? [['a', null]] : [['a', 'null']],
    )
    expect(push instanceof Push ? push.items : push).toEqual([5])
  }
})

test('an error cannot end its own line', () => {
  const writer = new RespWriter()
  writer.error('INVALID', 'a\r\n+OK\r\nb')
  writer.simple('next')
  const [error, next] = read(writer)
  expect((error as Error).message).toBe('INVALID a  +OK  b')
  expect(next).toBe('next')
})

describe('a command on one line', () => {
  const words = (line: string): string[] => {
    const parser = new CommandParser({ bytes: 4_096, args: 64 })
    const bytes = Buffer.from(`${line}\r\n`, 'latin1')
    const before = Buffer.from(bytes)
    parser.feed(bytes)
    expect(parser.next()).toBe(true)
    // What was fed belongs to others.
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
  ])('%s', (line, expected) => expect(words(line)).toEqual(expected))

  test.each([`a "b`, `a 'b`, `a "b"c`, `a 'b'"c"`, String.raw`a "b\"`, String.raw`a 'b\'`])('%s has unbalanced quotes', line =>
    expect(() => words(line)).toThrow(/unbalanced quotes/),
  )

  test('goes on with what follows it, in one piece or in many', () => {
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
