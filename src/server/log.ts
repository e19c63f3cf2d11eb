/**
 * The server's structured log: one JSON object per line, or the same as text. It contains names that clients chose, so characters that a terminal acts on or hides are replaced.
 * Anything that looks like a key's secret is replaced as well, in case one ever gets here.
 */
import { type DestinationStream, pino } from 'pino'
import type { AuditRecord } from './audit.ts'
import { CONTROL_CHARACTERS } from './control-characters.ts'
import { SECRET_PATTERN } from './key-secret.ts'
import type { ServerLog } from './listener.ts'
import { asText } from './text-log.ts'

const MAX_DEPTH = 6

export function clean(text: string): string {
  return text.replace(CONTROL_CHARACTERS, '\ufffd').replace(SECRET_PATTERN, '[key]')
}

function cleaned(value: unknown, left = MAX_DEPTH): unknown {
  if (typeof value === 'string') return clean(value)
  if (typeof value !== 'object' || value === null) return value
  if (left === 0) return '…'
  if (Array.isArray(value)) return value.map(item => cleaned(item, left - 1))
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [clean(name), cleaned(item, left - 1)]))
}

export type LogFormat = 'json' | 'text'

export interface LogOptions {
  readonly level?: 'debug' | 'info' | 'warn' | 'error' | 'silent'
  /** @default json */
  readonly format?: LogFormat
  readonly to?: DestinationStream
}

export function serverLog({ level = 'info', format = 'json', to: given }: LogOptions = {}): ServerLog {
  const to = format === 'text' ? asText(given ?? process.stdout) : given
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
  // The casts: pino's types want a tuple in logMethod, and this passes on whatever it was given.
  return (to === undefined ? pino(options as object) : pino(options as object, to)) as unknown as ServerLog
}

/** Writes audit records to the log: who did what, with which outcome. Hashes, values and passwords are left out. */
export function auditTo(log: ServerLog): (record: AuditRecord) => void {
  return ({ caller, command, outcome, of = [], named }) => {
    const did = command.kind === 'acquire' ? 'steal' : command.kind
    log.info(
      {
        audit: true,
        by: { key: caller.key, name: caller.name },
        did,
        ...objectOf(command),
        ...(named !== undefined && { named }),
        ...(of.length > 0 && { of }),
        ...(outcome && { outcome: outcome.kind === 'refused' ? outcome.code : outcome.kind, revision: outcome.revision }),
      },
      `${caller.name}: ${did}`,
    )
  }
}

function objectOf(command: AuditRecord['command']): object {
  switch (command.kind) {
    case 'key': {
      // Without the hash of the secret.
      const { kind: _, hash: __, allow, ...rest } = command
      return { on: { ...rest, allow: allow.map(({ verb, prefix }) => `${verb}:${prefix}`) } }
    }
    case 'rotate': {
      const { kind: _, hash: __, ...rest } = command
      return { on: rest }
    }
    case 'acquire': // Without entries, whose values may be anything.
      return {
        on: {
          resources: command.wants.map(({ resource }) => resource),
          holder: command.holder,
          how: command.steal,
          ...(command.pool !== undefined && { pool: command.pool.pool }),
        },
      }
    case 'put': // Without the value, which may be anything.
      return { on: { lease: command.lease, key: command.key } }
    case 'move': // Without the password that the URL may contain.
      return { on: { ...(command.to !== undefined && { to: command.to.replace(/\/\/[^@/]*@/, '//…@') }), stay: command.stay } }
    default: {
      const { kind: _, ...rest } = command
      return { on: rest }
    }
  }
}
