/** `leasehold guard`: describes the hook for help and mistakes. The hook itself is guard-process.ts, which leasehold.ts starts without this file. */
import { type Command, Option } from 'commander'
import { HOSTS } from '../../guard/hook-event.ts'
import { usageError } from '../exit.ts'
import { addGlobalOptions } from '../invocation.ts'

export function guard(program: Command): void {
  addGlobalOptions(program.command('guard'), ['store'])
    .summary('the hook of a coding agent, or of git: claims what is written, and denies what another agent holds')
    .description(
      'Reads the event of a hook on standard input and prints the answer that the host reads. Do not call it yourself: leasehold init writes the configuration that does.',
    )
    .addOption(
      new Option('--host <host>', 'the host whose events these are').choices(HOSTS.filter(host => host !== 'git')).default('claude'),
    )
    .addOption(new Option('--git <hook>', 'check what git is about to commit or push').choices(['pre-commit', 'pre-push']))
    .option('--agent <name>', 'the name of the agent (default: LEASEHOLD_AGENT, else by the process that started the hook)')
    .option('--fail-closed', 'deny what cannot be decided, for example while the server is away (default: allow it, with a warning)')
    .action(() => {
      throw usageError('leasehold guard takes its options after its name', 'Write: leasehold guard --host claude --store URL')
    })
}
