import { expect, test } from 'vitest'
import { Push, type Reply, ReplyParser } from '../../../src/wire/resp/reply-parser.ts'
import { RespWriter } from '../../../src/wire/resp/writer.ts'

function read(writer: RespWriter): Reply[] {
  const replies: Reply[] = []
  new ReplyParser().feed(writer.taken(), reply => replies.push(reply instanceof Uint8Array ? Buffer.from(reply).toString() : reply))
  return replies
}

test('every safe integer is read back as it was written', () => {
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

test('texts of every length and alphabet, maps, pushes and null are read back, in RESP 2 and 3', () => {
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

test('the message of an error cannot end its line', () => {
  const writer = new RespWriter()
  writer.error('INVALID', 'a\r\n+OK\r\nb')
  writer.simple('next')
  const [error, next] = read(writer)
  expect((error as Error).message).toBe('INVALID a  +OK  b')
  expect(next).toBe('next')
})
