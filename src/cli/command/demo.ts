/** `leasehold demo`: a server with a small world in which everything moves, for a first look at the dashboard. */
import type { Command } from 'commander'
import { systemClock } from '../../clock.ts'
import { addGlobalOptions, commandInput } from '../invocation.ts'
import { collect } from '../option-values.ts'
import { errorAttribution, type PortFlag, type ServeSettings, serveUntilStopped, withPort } from './serve.ts'

export function demo(program: Command): void {
  addGlobalOptions(program.command('demo'))
    .summary('a server with a lively little world, to look at')
    .description(
      'Serves leases in memory and lets a small world use them: workers on jobs, an election that fails over, agents that die and come back, GPUs with a queue, coding agents that claim files. Open the dashboard that it prints. Nothing is kept: INT or TERM end it without a trace. Without --port or --listen it takes port 7420 or the next free one.',
    )
    .option('--listen <address>', 'host:port, or a port of 127.0.0.1 (default: 127.0.0.1:7420)', collect)
    .option('--port <number>', 'a port of 127.0.0.1: the same as --listen <number>')
    .action(async ({ port, ...rest }: Pick<ServeSettings, 'listen'> & PortFlag, self: Command) => {
      const flags = withPort(rest, port)
      const { settings, out } = commandInput(self)
      const options: ServeSettings = { logLevel: 'error', logFormat: 'text', nextPort: flags.listen === undefined, ...flags }
      const input = { settings: { ...settings, url: 'memory:', serve: {}, file: undefined }, out }
      const { runDemo } = await import('../../demo/demo.ts')
      await serveUntilStopped(input, options, errorAttribution(input, options, flags), (lessor, signal) =>
        runDemo(lessor, { clock: systemClock, signal }),
      )
    })
}
