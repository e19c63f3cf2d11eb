/** The text that the functions `append` and `read` of the schema return. */
import type { LogRecord, Position } from '../../store.ts'

/** Bytes before each record: its nonce, its length, its age, and whether the server that answers wrote it. */
const HEADER = 22

/** A word, an index, and the records that follow `after` one by one. `trusted`: the clock of the server is trusted. */
export function parseAnswer(answer: string, after: Position, trusted: boolean): { kind: string; index: number; records: LogRecord[] } {
  const [kind = '', index = '0', hex = ''] = answer.split(' ', 3)
  const bytes = Buffer.from(hex, 'hex')
  const records: LogRecord[] = []
  for (let at = 0; at < bytes.length; ) {
    const end = at + HEADER + bytes.readUInt32BE(at + 8)
    const position = { index: after.index + records.length + 1, nonce: bytes.readBigUInt64BE(at) }
    const advisoryAge = Number(bytes.readBigInt64BE(at + 12))
    const age = trusted && bytes.readInt16BE(at + 20) === 1 ? Math.max(0, advisoryAge) : 0
    records.push({ position, bytes: bytes.subarray(at + HEADER, end), age, advisoryAge })
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
