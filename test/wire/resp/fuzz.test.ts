/** Mutated bytes are either parsed, the same way however they are split, or end the connection. */
import { describe, expect, test } from 'vitest'
import { Damaged, NewerFormatError, Reader, Writer } from '../../../src/kernel/codec/bytes.ts'
import { readServerMessage, writeServerMessage } from '../../../src/wire/messages.ts'
import { CommandParser, ProtocolError } from '../../../src/wire/resp/command-parser.ts'
import { ReplyParser } from '../../../src/wire/resp/reply-parser.ts'
import { CORPUS, Dice, mutated, pieces, SEED } from '../../support/resp-mutation.ts'
import { runs } from '../../support/runs.ts'

Error.stackTraceLimit = 1 // a third of the time would go into stacks of errors that are expected

describe(`with seed ${SEED}`, () => {
  test(`${runs(360_000)} mutated inputs give the command parser the same commands however they are split, or a ProtocolError`, () => {
    const dice = new Dice(SEED)
    const read = (chunks: readonly Buffer[]): string => {
      const parser = new CommandParser({ bytes: 4_096, args: 64 })
      const found: string[] = []
      try {
        for (const chunk of chunks) {
          parser.feed(chunk)
          while (parser.next()) found.push(Array.from({ length: parser.count }, (_, i) => parser.bytes(i).toString('latin1')).join('|'))
          parser.keep()
          if (parser.rest > 4_096 + 64 + 65_536) throw new Error('more is kept than allowed')
          chunk.fill(0) // a chunk is valid only until it was read
        }
      } catch (error) {
        if (!(error instanceof ProtocolError)) throw error
        found.push('error')
      }
      return found.join('\n')
    }
    for (let i = 0; i < runs(360_000); i++) {
      const input = mutated(dice, CORPUS)
      const cut = pieces(dice, input)
      const [found, whole] = [read(cut), i % 10 === 0 ? read([Buffer.from(input)]) : undefined]
      if (whole !== undefined && found !== whole) expect(found, `input ${i}: ${JSON.stringify(input.toString('latin1'))}`).toBe(whole)
    }
  })

  test(`${runs(300_000)} mutated answers give the client’s parser messages, or an error that ends the connection`, () => {
    const dice = new Dice(SEED)
    const writer = new Writer()
    writeServerMessage(writer, {
      kind: 'outcome',
      id: 1,
      outcome: { kind: 'granted', revision: 5, lease: 4, incarnation: 4, ttl: 100, resources: ['a'], tokens: [9] },
    })
    writeServerMessage(writer, { kind: 'events', id: 2, events: [{ revision: 5, type: 'granted', lease: 4, at: 0 }] })
    writeServerMessage(writer, { kind: 'view', id: 3, view: { revision: 5, value: [] } })
    writeServerMessage(writer, { kind: 'watching', id: 3, revision: 5 })
    const push = Buffer.concat([Buffer.from(`>2\r\n$11\r\nlease.batch\r\n$${writer.length}\r\n`), writer.view(), Buffer.from('\r\n')])
    const corpus = [
      push,
      Buffer.from('%1\r\n$5\r\nproto\r\n:3\r\n'),
      Buffer.from('*2\r\n:1\r\n_\r\n|1\r\n+a\r\n+b\r\n-ERR x\r\n'),
      Buffer.from(':5\r\n+OK\r\n#t\r\n,1.5\r\n'),
    ]
    for (let i = 0; i < runs(300_000); i++) {
      const parser = new ReplyParser({ bytes: 1 << 16, depth: 8 })
      try {
        for (const chunk of pieces(dice, mutated(dice, corpus)))
          parser.feed(chunk, reply => {
            if (typeof reply !== 'object' || reply === null || !('items' in reply) || !(reply.items[1] instanceof Uint8Array)) return
            const from = new Reader(reply.items[1])
            while (from.left > 0) readServerMessage(from)
          })
      } catch (error) {
        if (!(error instanceof ProtocolError || error instanceof Damaged || error instanceof NewerFormatError)) throw error
      }
    }
  })
})
