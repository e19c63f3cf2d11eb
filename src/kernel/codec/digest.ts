/** Digests of commands, and operations for clients that only have a text to identify one. */
import type { Command, Operation } from '../command.ts'
import { Writer } from './bytes.ts'
import { writeProposal } from './encode.ts'

const SIZE = 2 ** 21

/**
 * A digest of a command: 53 bits, above 0, the same on every server. It protects against mistakes, not against attacks: a client that reuses an op reuses its own.
 * 0 if the command cannot be encoded, which is refused anyway.
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
 * The operation of a client that sends only a text. It cannot tell whether this is the first attempt, so each may be a repetition: even a refusal is written to
 * the log and kept as the answer. The kind is part of the session: the same text for two kinds of commands means two operations.
 */
export function operationNamed(text: string, command: Command): Operation {
  return { session: `${command.kind} ${text}`, seq: 1, acked: 0, again: true, asked: digestOf(command) }
}
