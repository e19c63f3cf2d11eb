/**
 * Counts the work of a command, as far as its form tells: the leases, names and entries that it names. A record is applied in one turn of the event loop, so the
 * outbox limits the work of a record, and not only its bytes.
 */
import type { Command } from './command.ts'

export function workOf(command: Command): number {
  switch (command.kind) {
    case 'acquire':
      return Math.max(
        1,
        command.wants.length + (command.entries?.length ?? 0) + (command.compare?.length ?? 0) + (command.changes?.length ?? 0),
      )
    case 'renew':
      return Math.max(1, command.leases.length)
    case 'release':
      return 1 + (command.stopped?.length ?? 0) + (command.compare?.length ?? 0) + (command.changes?.length ?? 0)
    case 'aged':
      return Math.max(1, command.marks.length)
    case 'revoke':
      return Math.max(1, command.among?.length ?? 0)
    case 'widen':
      return 1 + command.wants.length
    case 'transaction':
      return 1 + (command.compare?.length ?? 0) + Math.max(command.success?.length ?? 0, command.failure?.length ?? 0)
    default:
      return 1
  }
}
