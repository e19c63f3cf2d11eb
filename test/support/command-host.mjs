// The built command line in a process that stays: it runs one command after the other, each as the program would, and saves the start of Node for each.

import { EventEmitter } from 'node:events'
import { writeSync } from 'node:fs'
import { rememberCommand, rememberFlags } from '../../dist/cli/hints.js'
import { main } from '../../dist/cli/program.js'

EventEmitter.defaultMaxListeners = 0 // each command listens for errors of stdout, and to its signals
process.on('disconnect', () => process.exit())
process.on('message', async ({ args, env, cwd, end }) => {
  process.chdir(cwd)
  for (const name of Object.keys(process.env)) if (!(name in env)) delete process.env[name]
  Object.assign(process.env, env)
  rememberFlags({})
  rememberCommand([])
  process.argv.splice(2, process.argv.length, ...args)
  process.exitCode = 0
  await main(args)
  const code = process.exitCode
  process.exitCode = 0
  process.stdout.write(end)
  writeSync(2, end)
  process.send(code)
})
