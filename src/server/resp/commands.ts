import type { RespCommand } from './command.ts'
import { MANNERS } from './connection-commands.ts'
import { LEASE_COMMANDS } from './lease-commands.ts'
import { LOOK_COMMANDS } from './read-commands.ts'

/** Every command there is, by its name. */
export const COMMANDS: ReadonlyMap<string, RespCommand> = new Map(
  [...MANNERS, ...LEASE_COMMANDS, ...LOOK_COMMANDS].map(command => [command.name, command]),
)
