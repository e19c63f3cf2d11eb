/** `leasehold completion`: prints the script with which a shell completes the commands and options. */
import type { Command } from 'commander'
import { completedCommands, completionScript, SHELLS } from '../completion.ts'
import { jsonLine } from '../output.ts'

export function completion(program: Command): void {
  program
    .command('completion')
    .summary('print the completion script of a shell')
    .description(
      'Prints a script that completes the commands and options of leasehold. Write it to the folder in which your shell looks for completions.',
    )
    .argument('<shell>', `${SHELLS.join(', ')}`)
    .option('--json', 'print the commands and their options as JSON instead (default: the script)')
    .action((shell: string, { json }: { readonly json?: boolean }, self: Command) => {
      const commands = completedCommands(self.parent!)
      const script = completionScript(shell, commands)
      process.stdout.write(json === true ? `${jsonLine({ commands })}\n` : script)
    })
}
