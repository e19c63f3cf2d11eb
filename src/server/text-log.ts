/** The server's log as text, for people at a terminal: one line for each JSON line of `log.ts`, with the same facts. */
import type { DestinationStream } from 'pino'
import { inUtc } from '../clock.ts'

/** Fields that every line has, and that have a place of their own in the text or none. */
const COMMON = new Set(['level', 'time', 'name', 'pid', 'msg'])
const LEVEL_WIDTH = 5

/** A destination for JSON lines that writes text to another one. */
export function asText(to: DestinationStream): DestinationStream {
  return { write: line => to.write(`${textOf(JSON.parse(line) as Record<string, unknown>)}\n`) }
}

function textOf(line: Readonly<Record<string, unknown>>): string {
  const facts = Object.entries(line).filter(([name]) => !COMMON.has(name))
  const told = facts.map(([name, value]) => `${name}=${shown(value)}`)
  return [inUtc(line.time as number), String(line.level).padEnd(LEVEL_WIDTH), line.msg, ...told]
    .filter(part => part !== undefined)
    .join(' ')
}

/** Quoted if it could be taken for two facts. */
function shown(value: unknown): string {
  if (typeof value !== 'string') return JSON.stringify(value)
  return /^[^\s="]+$/.test(value) ? value : JSON.stringify(value)
}
