import type { RespCommand } from './resp-command.ts'
import { LEASE_COMMANDS } from './resp-lease-commands.ts'
import { LOOK_COMMANDS } from './resp-look-commands.ts'
import { MANNERS } from './resp-manners.ts'

/** Every command there is, by its name. */
export const COMMANDS: ReadonlyMap<string, RespCommand> = new Map(
  [...MANNERS, ...LEASE_COMMANDS, ...LOOK_COMMANDS].map(command => [command.name, command]),
)
