/**
 * The bytes of the three commands that every lease needs, written by hand. They are the bytes that follow from the command table, as a
 * test makes sure; code that names the fields takes about two thirds of the time.
 */
import type { Acquire, Release, Renew, Want } from '../command.ts'
import { COMMAND_TABLE } from '../command-table.ts'
import { readIds, writeIds } from './field.ts'
import type { Layout, MaskedLayout } from './layout.ts'

export const renewLayout: Layout<Renew> = {
  write(to, { waiting = false, leases }) {
    to.bool(waiting)
    writeIds(to, leases)
  },
  read: from => (from.bool() ? { kind: 'renew', leases: readIds(from), waiting: true } : { kind: 'renew', leases: readIds(from) }),
}

export const releaseLayout: Layout<Release> = {
  write(to, { lease, resource = '' }) {
    to.uint(lease)
    to.text(resource)
  },
  read(from) {
    const lease = from.uint()
    const resource = from.text()
    return resource === '' ? { kind: 'release', lease } : { kind: 'release', lease, resource }
  },
}

const { wait: WAIT, incarnation: INCARNATION, priority: PRIORITY, grace: GRACE } = COMMAND_TABLE.acquire.bits

const OPTIONS = WAIT | INCARNATION | PRIORITY | GRACE

/** The general layout writes and reads an acquisition with other options than these. */
export function acquireLayout(general: MaskedLayout<Acquire>): Layout<Acquire> {
  return {
    write(to, command) {
      const { any, entries, parent, labels, holding, maxLife, steal, recall, pool, permits, covers, compare, changes } = command
      if (any || entries || parent || labels || holding || maxLife || steal || recall || pool || permits || covers || compare || changes)
        return general.write(to, command)
      const { holder, ttl, wants, wait, incarnation, priority, grace } = command
      to.uint((wait ? WAIT : 0) | (incarnation ? INCARNATION : 0) | (priority ? PRIORITY : 0) | (grace ? GRACE : 0))
      to.text(holder)
      to.uint(ttl)
      to.uint(wants.length)
      for (const { resource, units = 1, shared } of wants) {
        to.text(resource)
        to.uint(shared === true ? 0 : units)
      }
      if (incarnation) to.uint(incarnation)
      if (priority) to.int(priority)
      if (grace) to.uint(grace)
    },
    read(from) {
      const mask = from.uint()
      if (mask > OPTIONS || (mask & ~OPTIONS) !== 0) return general.readAfter(mask, from)
      const wants: Want[] = []
      const command: { -readonly [K in keyof Acquire]: Acquire[K] } = { kind: 'acquire', holder: from.text(), ttl: from.uint(), wants }
      for (let left = from.length(); left > 0; left--) {
        const resource = from.text()
        const units = from.uint()
        wants.push(units === 0 ? { resource, units: 1, shared: true } : { resource, units, shared: false })
      }
      if (mask & INCARNATION) command.incarnation = from.uint()
      if (mask & WAIT) command.wait = true
      if (mask & PRIORITY) command.priority = from.int()
      if (mask & GRACE) command.grace = from.uint()
      return command
    },
  }
}
