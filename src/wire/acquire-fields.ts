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
  ttlMin: optional(duration, 'A shorter one is of no use.'),
  ttlMax: optional(duration, 'A longer one is not wanted.'),
  wait: optional(duration, 'How long to wait in the queue while others hold it; left out: not at all.'),
  queue: defaulted(flag, 'Answer at once, and say later when it is granted.'),
  reuse: defaulted(
    flag,
    'If the holder, with the same incarnation, has a lease on exactly these resources, renew it and answer with it instead of HELD.',
  ),
  units: optional(count, 'Units of each resource; 1 when left out.'),
  unitsOf: defaulted(list(unitsOfOne, MAX_RESOURCES), 'Units of one of the resources.'),
  shared: defaulted(flag),
} as const
