import type { Command, Operation } from '../command.ts'
import { Writer } from './bytes.ts'
import { writeProposal } from './encode.ts'

const SIZE = 2 ** 21

/**
 * What a command asks, as a number of 53 bits above 0: the same command, the same number, on every server. Against mistakes and not against
 * malice: whoever uses an op twice uses its own. 0 when it cannot be written at all, which is refused anyway.
 */
export function digestOf(command: Command): number {
  const to = new Writer(256)
  try {
    writeProposal(to, { command })
  } catch {
    return 0
  }
  let a = 0xcbf29ce4
  let b = 0x84222325
  for (const byte of to.view()) {
    a = Math.imul(a ^ byte, 0x01000193)
    b = Math.imul(b ^ byte ^ (a >>> 11), 0x85ebca6b)
  }
  return (a >>> 0) * SIZE + ((b >>> 0) % SIZE) || 1
}

/**
 * What a client that has only a text to say calls an operation. It cannot tell us whether it asks for the first time, so each may be the
 * second: even a refusal is written down and stays the answer. The kind is part of it: one text for two kinds of questions is two operations.
 */
export function operationNamed(text: string, command: Command): Operation {
  return { session: `${command.kind} ${text}`, seq: 1, acked: 0, again: true, asked: digestOf(command) }
}
