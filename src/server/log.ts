/**
 * Structured logs, one JSON object a line. What others named themselves may stand in them, so whatever a terminal would act upon or hide is taken
 * out; and whatever has the form of a key is, too, should one ever come this way.
 */
import { type DestinationStream, pino } from 'pino'
import type { Audited } from './audit.ts'
import { CONTROL_CHARACTERS } from './control-characters.ts'
import { SECRET } from './key-secret.ts'
import type { Log } from './listener.ts'

const DEEPEST = 6

export function clean(text: string): string {
  return text.replace(CONTROL_CHARACTERS, '\ufffd').replace(SECRET, '[key]')
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
  return ({ caller, command, outcome, of = [] }) => {
    const did = command.kind === 'acquire' ? 'steal' : command.kind
    log.info(
      {
        audit: true,
        by: { key: caller.key, name: caller.name },
        did,
        ...about(command),
        ...(of.length > 0 && { of }),
        ...(outcome && { outcome: outcome.kind === 'refused' ? outcome.code : outcome.kind, revision: outcome.revision }),
      },
      `${caller.name}: ${did}`,
    )
  }
}

function about(command: Audited['command']): object {
  switch (command.kind) {
    case 'key': // A hash cannot be turned back, and is still nobody's business.
      return { on: { name: command.name, allow: command.allow.map(({ verb, prefix }) => `${verb}:${prefix}`) } }
    case 'acquire': // What it attaches may be anything.
      return { on: { resources: command.wants.map(({ resource }) => resource), holder: command.holder, how: command.steal } }
    case 'move': // A password may stand in it.
      return { on: { ...(command.to !== undefined && { to: command.to.replace(/\/\/[^@/]*@/, '//…@') }), stay: command.stay } }
    default: {
      const { kind: _, ...rest } = command
      return { on: rest }
    }
  }
}
