/**
 * Structured logs, one JSON object a line. What others named themselves may stand in them, so whatever a terminal would act upon or hide is taken
 * out; and whatever has the form of a key is, too, should one ever come this way.
 */
import { type DestinationStream, pino } from 'pino'
import type { Command } from '../kernel/command.ts'
import type { Audited } from './desk.ts'
import type { Log } from './door.ts'
import { SECRET } from './secret.ts'

/** Control characters, line separators, and marks that turn the direction of writing or have no width. */
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g
const DEEPEST = 6

export function clean(text: string): string {
  return text.replace(UNSEEN, '\ufffd').replace(SECRET, '[key]')
}

function cleaned(value: unknown, left = DEEPEST): unknown {
  if (typeof value === 'string') return clean(value)
  if (typeof value !== 'object' || value === null) return value
  if (left === 0) return '…'
  if (Array.isArray(value)) return value.map(item => cleaned(item, left - 1))
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [clean(name), cleaned(item, left - 1)]))
}

export interface LogOptions {
  readonly level?: 'debug' | 'info' | 'warn' | 'error' | 'silent'
  readonly to?: DestinationStream
}

export function serverLog({ level = 'info', to }: LogOptions = {}): Log {
  const options = {
    level,
    base: { name: 'leasehold', pid: process.pid },
    formatters: { level: (label: string) => ({ level: label }), log: (facts: object) => cleaned(facts) as Record<string, unknown> },
    hooks: {
      logMethod(this: unknown, args: unknown[], method: (...args: unknown[]) => void) {
        method.apply(
          this,
          args.map(arg => (typeof arg === 'string' ? clean(arg) : arg)),
        )
      },
    },
  }
  // The casts: pino's own types want a tuple here, and we hand on what came.
  return (to === undefined ? pino(options as object) : pino(options as object, to)) as unknown as Log
}

/** What operators did, who they were, and what came of it; never what only keys may know. */
export function auditTo(log: Log): (done: Audited) => void {
  return ({ caller, command, outcome }) =>
    log.info(
      {
        audit: true,
        by: { key: caller.key, name: caller.name },
        did: command.kind,
        ...about(command),
        outcome: outcome.kind === 'refused' ? outcome.code : outcome.kind,
        revision: outcome.revision,
      },
      `${caller.name}: ${command.kind}`,
    )
}

function about(command: Command): object {
  if (command.kind !== 'key') {
    const { kind: _, ...rest } = command
    return { on: rest }
  }
  // A hash cannot be turned back, and is still nobody's business.
  return { on: { name: command.name, allow: command.allow.map(({ verb, prefix }) => `${verb}:${prefix}`) } }
}
