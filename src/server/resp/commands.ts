/** All RESP commands, by name. */
import type { RespCommand } from './command.ts'
import { CONNECTION_COMMANDS } from './connection-commands.ts'
import { LEASE_COMMANDS } from './lease-commands.ts'
import { READ_COMMANDS } from './read-commands.ts'

export const COMMANDS: ReadonlyMap<string, RespCommand> = new Map(
  [...CONNECTION_COMMANDS, ...LEASE_COMMANDS, ...READ_COMMANDS].map(command => [command.name, command]),
)
