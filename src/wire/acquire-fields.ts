/**
 * The fields of a request for a lease, over HTTP and RESP: those of the command `acquire`, and those that the server answers before or after it.
 * Both protocols read them by this table. What only one of them has is beside its reader.
 */
import { count, defaulted, duration, flag, list, name, needed, optional, record } from '../kernel/codec/field.ts'
import { MAX_RESOURCES } from '../kernel/command.ts'
import { COMMAND_TABLE } from '../kernel/command-table.ts'

const unitsOfOne = record<{ readonly resource: string; readonly units: number }>({ resource: needed(name), units: needed(count) })

export const ACQUIRE_FIELDS = {
  ...COMMAND_TABLE.acquire.fields,
  ttlMin: optional(duration),
  ttlMax: optional(duration),
  wait: optional(duration),
  queue: defaulted(flag),
  reuse: defaulted(flag),
  units: optional(count),
  unitsOf: defaulted(list(unitsOfOne, MAX_RESOURCES)),
  shared: defaulted(flag),
} as const
