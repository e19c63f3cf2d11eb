#!/usr/bin/env node
// The `leasehold` program. Before anything else is loaded, take over USR1 and USR2, which belong to the command that `run` starts. By default, USR1
// would open Node's debugger, to which every user of the machine can connect, and USR2 would end the process.
import * as nodeModule from 'node:module'

for (const name of ['SIGUSR1', 'SIGUSR2'] as const) process.on(name, () => {})

keepCompiledCode()

const [command, ...rest] = process.argv.slice(2)

/** A hook runs on every edit of an agent: it must not load all commands. False: the program reads the flags. */
async function ranGuard(): Promise<boolean> {
  if (command !== 'guard') return false
  const { guard, guardFlags } = await import('./guard-process.ts')
  const flags = guardFlags(rest)
  if (flags === undefined) return false
  process.exitCode = await guard(flags)
  return true
}

if (!(await ranGuard())) {
  const { main } = await import('./program.ts')
  await main(process.argv.slice(2))
}

/**
 * From Node 22.1 on, keeps the compiled code for the next start, in a folder of the user. Node's default is a folder in /tmp, where another user could
 * put code of theirs.
 */
function keepCompiledCode(): void {
  const { enableCompileCache } = nodeModule as { readonly enableCompileCache?: (folder: string) => unknown }
  const { NODE_COMPILE_CACHE, XDG_CACHE_HOME, HOME } = process.env
  const caches = XDG_CACHE_HOME?.startsWith('/') ? XDG_CACHE_HOME : HOME?.startsWith('/') ? `${HOME}/.cache` : undefined
  if (NODE_COMPILE_CACHE === undefined && caches !== undefined) enableCompileCache?.(`${caches}/leasehold`)
}
