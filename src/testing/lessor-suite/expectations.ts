/** Checks of answers, and the commands that many cases send. */
import assert from 'node:assert/strict'
import type { Acquire, Command, PolicyRules, Scope } from '../../kernel/command.ts'
import type { Event } from '../../kernel/event.ts'
import type { Done, Granted, Outcome, Queued, RefusalCode, Refused } from '../../kernel/outcome.ts'
import { propose } from '../../lessor/propose.ts'
import type { Lessor } from '../../lessor.ts'

/** Long enough not to expire within a case. */
export const LONG = 600_000
export const SHORT = 1_000

export function acquire(holder: string, names: readonly string[], options: Partial<Acquire> = {}): Acquire {
  return { kind: 'acquire', holder, ttl: LONG, wants: names.map(resource => ({ resource })), ...options }
}

export function policy(prefix: string, rules: PolicyRules): Command {
  return { kind: 'policy', prefix, rules }
}

export function createKey(name: string, allow: readonly Scope[]): Command {
  return { kind: 'key', name, hash: name.charCodeAt(0).toString(16).padEnd(64, '0'), allow }
}

export function shown(value: unknown): string {
  return (JSON.stringify(value) ?? String(value)).slice(0, 500)
}

export function granted(outcome: Outcome): Granted {
  assert.ok(outcome.kind === 'granted', `expected a grant, got ${shown(outcome)}`)
  return outcome
}

export function queued(outcome: Outcome): Queued {
  assert.ok(outcome.kind === 'queued', `expected to wait, got ${shown(outcome)}`)
  return outcome
}

export function done(outcome: Outcome): Done {
  assert.ok(outcome.kind === 'done', `expected it to be done, got ${shown(outcome)}`)
  return outcome
}

export function refused(code: RefusalCode, outcome: Outcome): Refused {
  assert.ok(outcome.kind === 'refused' && outcome.code === code, `expected ${code}, got ${shown(outcome)}`)
  return outcome
}

export function ttls(outcome: Outcome): readonly number[] {
  assert.ok(outcome.kind === 'renewed', `expected a renewal, got ${shown(outcome)}`)
  return outcome.ttls
}

export async function renew(lessor: Lessor, ...leases: readonly number[]): Promise<readonly number[]> {
  return ttls(await propose(lessor, { kind: 'renew', leases }))
}

export async function holders(lessor: Lessor, resource: string): Promise<readonly string[]> {
  return (await lessor.read({ kind: 'resource', resource }, { consistent: true })).value.grants.map(({ holder }) => holder)
}

export async function status(lessor: Lessor, lease: number): Promise<string | undefined> {
  return (await lessor.read({ kind: 'lease', lease }, { consistent: true })).value?.status
}

/** An event in short: its type, resource and holder, as in `granted a ann`. */
export function types(events: readonly Event[]): string[] {
  return events.map(({ type, resource, key, holder }) => [type, resource ?? key, holder].filter(Boolean).join(' '))
}
