#!/usr/bin/env node
// The `leasehold` program. Before anything else is loaded, take over USR1 and USR2, which belong to the command that `run` starts. By default, USR1
// would open Node's debugger, to which every user of the machine can connect, and USR2 would end the process.
import * as nodeModule from 'node:module'

for (const name of ['SIGUSR1', 'SIGUSR2'] as const) process.on(name, () => {})

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

// Where Node does not keep compiled code by itself, the large file is loaded for that, which a hook does not need.
if (command !== 'guard' || 'enableCompileCache' in nodeModule) {
  const { keepCompiledCode } = await import('./compiled-code.ts')
  keepCompiledCode(command ?? '')
}

if (!(await ranGuard())) {
  const { main } = await import('./program.ts')
  await main(process.argv.slice(2))
}
