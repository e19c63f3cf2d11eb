/** The text that the functions `append` and `read` of the schema return. */
import type { LogRecord, Position } from '../../store.ts'

/** Bytes before each record: its nonce and its length. */
const HEADER = 12

/** A word, an index, and the records that follow `after` one by one. */
export function parseAnswer(answer: string, after: Position): { kind: string; index: number; records: LogRecord[] } {
  const [kind = '', index = '0', hex = ''] = answer.split(' ', 3)
  const bytes = Buffer.from(hex, 'hex')
  const records: LogRecord[] = []
  for (let at = 0; at < bytes.length; ) {
    const end = at + HEADER + bytes.readUInt32BE(at + 8)
    const position = { index: after.index + records.length + 1, nonce: bytes.readBigUInt64BE(at) }
    records.push({ position, bytes: bytes.subarray(at + HEADER, end), age: 0 })
    at = end
  }
  return { kind, index: Number(index), records }
}

/** Why the log diverged. The functions in existing databases say `entry` for a record. */
export function divergence(answer: string): string {
  return answer
    .replace('diverged ', '')
    .replace('another entry stands at', 'another record is at')
    .replace(/^entry /, 'record ')
}
