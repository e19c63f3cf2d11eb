/** Operators act from the dashboard with these actions. Each action says first what it will do, asks once, and then sends one request; the server logs it in its audit log. */
import { signal } from '@preact/signals'
import { ACTION_VERBS, type OperatorAction } from '../wire/http/action-verb.ts'
import type { InstanceAnswer, LeaseAnswer } from './answers.ts'
import { parseTime, pathOf } from './format.ts'
import { parseRules } from './policy-text.ts'
import { may, send } from './server.ts'

export interface ActionField {
  readonly name: string
  readonly label: string
  readonly value: string
  readonly hint?: string
  readonly kind?: 'text' | 'time' | 'check' | 'lines'
}

export type FieldValues = Readonly<Record<string, string>>

export interface PlannedAction {
  readonly title: string
  /** The word on the button. */
  readonly verb: string
  /** The body of a request to /v1/preview, which says what the action would do. */
  readonly preview?: (values: FieldValues) => object
  /** The action does this, where the server has no preview. */
  readonly says?: string
  readonly fields?: readonly ActionField[]
  readonly danger?: boolean
  readonly run: (values: FieldValues) => Promise<unknown>
  /** This was done, for the line at the end. */
  readonly done: string
}

/** The action that is being asked about. */
export const planned = signal<PlannedAction | undefined>(undefined)

export interface DoneLine {
  readonly id: number
  readonly text: string
  readonly revision: number | undefined
}

/** These actions were done from this page, newest last; only the last few. */
export const doneLines = signal<readonly DoneLine[]>([])
const MAX_LINES = 4
let lines = 0

export function noteDone(text: string, answer: unknown): void {
  const revision = (answer as { revision?: unknown } | undefined)?.revision
  const line = { id: ++lines, text, revision: typeof revision === 'number' ? revision : undefined }
  doneLines.value = [...doneLines.value, line].slice(-MAX_LINES)
}

export function dismissLine(id: number): void {
  doneLines.value = doneLines.value.filter(line => line.id !== id)
}

function timeOf(text: string | undefined): number | undefined {
  if (text === undefined || text.trim() === '') return undefined
  const ms = parseTime(text)
  if (ms === undefined) throw new Error(`${text} is not a length of time. Write 30s, 5m or 1h30m.`)
  return ms
}

export function releaseLease(lease: number, holder: string): PlannedAction {
  return {
    title: `Release the lease of ${holder}`,
    verb: 'Release',
    preview: () => ({ action: 'release', lease }),
    danger: true,
    run: () => send('DELETE', `/v1/leases/${lease}`),
    done: `Released lease ${lease} of ${holder}`,
  }
}

export function revokeLease(lease: number, holder: string, children: number): PlannedAction {
  return {
    title: children > 0 ? `Revoke the lease of ${holder} and all below it` : `Revoke the lease of ${holder}`,
    verb: 'Revoke',
    preview: () => ({ action: 'revoke', lease }),
    fields: [FORCE],
    danger: true,
    run: values => send('POST', '/v1/revoke', { lease, ...forced(values) }),
    done: `Revoked lease ${lease} of ${holder}`,
  }
}

export function revokeHolder(holder: string): PlannedAction {
  return {
    title: `Revoke every lease of ${holder}`,
    verb: 'Revoke all',
    preview: () => ({ action: 'revoke', holder }),
    fields: [FORCE],
    danger: true,
    run: values => send('POST', '/v1/revoke', { holder, ...forced(values) }),
    done: `Revoked every lease of ${holder}`,
  }
}

export function revokePrefix(prefix: string): PlannedAction {
  return {
    title: `Revoke every lease under ${prefix}`,
    verb: 'Revoke all',
    preview: () => ({ action: 'revoke', prefix }),
    fields: [FORCE],
    danger: true,
    run: values => send('POST', '/v1/revoke', { prefix, ...forced(values) }),
    done: `Revoked every lease under ${prefix}`,
  }
}

const FORCE: ActionField = {
  name: 'force',
  label: 'At once, without waiting until the holders have stopped',
  value: '',
  kind: 'check',
  hint: 'Two holders may then use the resource at the same time, unless it checks tokens.',
}

function forced({ force }: FieldValues): { readonly force?: true } {
  return force === 'yes' ? { force: true } : {}
}

export function breakResource(resource: string): PlannedAction {
  return {
    title: `Break ${resource}`,
    verb: 'Break',
    preview: () => ({ action: 'break', resource }),
    fields: [{ name: 'after', label: 'After', value: '30s', kind: 'time', hint: 'The holder is told now, and has this long to stop.' }],
    danger: true,
    run: ({ after }) => send('POST', '/v1/break', { resource, after: timeOf(after) ?? 0 }),
    done: `Broke ${resource}`,
  }
}

export function recallResource(resource: string): PlannedAction {
  return {
    title: `Ask for ${resource}`,
    verb: 'Ask',
    preview: () => ({ action: 'recall', resource }),
    fields: [
      { name: 'by', label: 'Message to the holder', value: '', hint: 'The holder sees it as the author of the request. Empty: your key.' },
    ],
    run: ({ by = '' }) => send('POST', '/v1/recall', { resource, ...(by.trim() !== '' && { by: by.trim() }) }),
    done: `Asked the holders of ${resource} to release it`,
  }
}

export function extendLease(lease: number, holder: string): PlannedAction {
  return {
    title: `Extend the lease of ${holder}`,
    verb: 'Extend',
    says: `Lets ${holder} keep its members of the pool for longer than its own limit says. The server refuses this if a waiter or a reservation needs them.`,
    fields: [{ name: 'by', label: 'By', value: '1h', kind: 'time' }],
    run: ({ by }) => send('POST', `/v1/leases/${lease}/extend`, { by: timeOf(by) ?? 0 }),
    done: `Extended lease ${lease} of ${holder}`,
  }
}

const STATUS_SENTENCES = {
  draining: 'gets no new work, keeps what it has, and stays listed',
  maintenance: 'is listed and never picked until it is back in service',
  passing: 'is picked again',
} as const

/** Sets the status that an instance declares about itself. It stays until the instance or an operator declares another one. */
export function setStatus(
  { service, instance, lease, load }: Pick<InstanceAnswer, 'service' | 'instance' | 'lease' | 'load'>,
  status: keyof typeof STATUS_SENTENCES,
): PlannedAction {
  const title = { draining: 'Drain', maintenance: 'Put into maintenance', passing: 'Put back into service' }[status]
  return {
    title: `${title}: ${service}/${instance}`,
    verb: { draining: 'Drain', maintenance: 'Maintenance', passing: 'Back into service' }[status],
    says: `${service}/${instance} ${STATUS_SENTENCES[status]}. Its lease is not touched.`,
    run: () =>
      send('PUT', `/v1/entries/services/${pathOf(`${service}/${instance}`)}/state`, { lease, value: JSON.stringify({ status, load }) }),
    done: `${service}/${instance} is now ${status}`,
  }
}

export function deregister(service: string, instance: string): PlannedAction {
  return {
    title: `Deregister ${service}/${instance}`,
    verb: 'Deregister',
    says: `Removes ${service}/${instance} from the registry, everywhere, in one revision. If it still runs, its next heartbeat is told to register again.`,
    danger: true,
    run: () => send('DELETE', `/v1/services/${pathOf(`${service}/${instance}`)}`),
    done: `Deregistered ${service}/${instance}`,
  }
}

export function setPolicy(prefix: string, rules: object): PlannedAction {
  const now = Object.entries(rules).map(([rule, value]) => `${rule}=${value}`)
  return {
    title: prefix === '' ? 'Set the policy of everything' : 'Set a policy',
    verb: 'Set',
    preview: ({ prefix: chosen = prefix }) => ({ action: 'policy', prefix: chosen }),
    fields: [
      { name: 'prefix', label: 'Prefix', value: prefix, hint: 'All names at and below it. Empty: everything.' },
      {
        name: 'rules',
        label: 'Rules, one a line',
        value: now.join('\n'),
        kind: 'lines',
        hint: 'capacity=3, ttlMax=5m, waiters=10, lockDelay=10s, maxHold=1h, quota=5, queue=fit',
      },
    ],
    run: ({ prefix: chosen = '', rules: text = '' }) => send('PUT', `/v1/policies/${pathOf(chosen)}`, parseRules(text)),
    done: `Set the policy of ${prefix === '' ? 'a prefix' : prefix}`,
  }
}

export function removePolicy(prefix: string): PlannedAction {
  return {
    title: `Remove the policy of ${prefix === '' ? 'everything' : prefix}`,
    verb: 'Remove',
    preview: () => ({ action: 'policy', prefix }),
    danger: true,
    run: () => send('DELETE', `/v1/policies/${pathOf(prefix)}`),
    done: `Removed the policy of ${prefix === '' ? 'everything' : prefix}`,
  }
}

/** Returns whether the key may do this to all of these names. The server decides: the dashboard only leaves out what would be refused. */
export function mayAct(action: OperatorAction, ...names: readonly string[]): boolean {
  return names.every(name => may(ACTION_VERBS[action], name))
}

/** Returns whether the key may end a lease. A lease without names needs the right on everything. */
export function mayEnd(action: 'release' | 'revoke', lease: Pick<LeaseAnswer, 'grants' | 'wants' | 'entries' | 'own'>): boolean {
  if (lease.own === true) return true
  const names = [...[...lease.grants, ...lease.wants].map(({ resource }) => resource), ...lease.entries.map(({ key }) => key)]
  return mayAct(action, ...(names.length === 0 ? [''] : names))
}
