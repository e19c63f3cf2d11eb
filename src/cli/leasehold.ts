#!/usr/bin/env node
// Before anything else is loaded: USR1 and USR2 belong to the command that is run. The one would open a debugger of Node, to which every user of the
// machine can connect, and the other end us.
for (const name of ['SIGUSR1', 'SIGUSR2'] as const) process.on(name, () => {})

const { main } = await import('./program.ts')
await main(process.argv.slice(2))

export {}
