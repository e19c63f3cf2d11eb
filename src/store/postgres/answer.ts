import type { LogRecord, Position } from '../../store.ts'

/** An entry's head: its nonce and its length. */
const HEAD = 12

/** What `append` and `read` answer, see postgres-schema.ts: a word, an index, and entries that follow `after` one by one. */
export function parseAnswer(answer: string, after: Position): { kind: string; index: number; entries: LogRecord[] } {
  const [kind = '', index = '0', hex = ''] = answer.split(' ', 3)
  const bytes = Buffer.from(hex, 'hex')
  const entries: LogRecord[] = []
  for (let at = 0; at < bytes.length; ) {
    const end = at + HEAD + bytes.readUInt32BE(at + 8)
    const position = { index: after.index + entries.length + 1, nonce: bytes.readBigUInt64BE(at) }
    entries.push({ position, bytes: bytes.subarray(at + HEAD, end), age: 0 })
    at = end
  }
  return { kind, index: Number(index), entries }
}
