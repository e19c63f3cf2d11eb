/** `leasehold mcp`: claims for a coding agent, as tools of the Model Context Protocol on standard input and output. */
import type { Command } from 'commander'
import { isAlive, processOf } from '../../agent/bound-process.ts'
import { checkAgentName } from '../../agent/names.ts'
import { workspaceOf } from '../../agent/workspace.ts'
import { parseDuration } from '../../duration.ts'
import type { LeaseError } from '../../errors.ts'
import { type AgentProcess, hostProcess } from '../../guard/host-process.ts'
import { VERSION } from '../../server/version.ts'
import { usageError } from '../exit.ts'
import { addGlobalOptions, commandInput, invoke } from '../invocation.ts'
import { parseInteger } from '../option-values.ts'
import { writeStderrLine } from '../output.ts'

interface McpFlags {
  readonly agent?: string
  readonly bindPid?: string
  readonly idle: string
  readonly cap: string
  readonly workspace?: string | boolean
}

export function mcp(program: Command): void {
  addGlobalOptions(program.command('mcp'))
    .summary('claims for a coding agent, as MCP tools on stdin and stdout')
    .description(
      'Serves the Model Context Protocol on standard input and output: the tools claim, mine, release, look, ask, take and whoami of one agent. Start it from the configuration of the agent, not by hand. The claims are free when the input ends, when this process is ended, or when the bound process is gone.',
    )
    .option('--agent <name>', 'the name of the agent (default: LEASEHOLD_AGENT, else agent-PID of its host)')
    .option('--bind-pid <pid>', 'the process of the agent (default: its host, which is found above shells, npx and script files)')
    .option('--idle <duration>', 'after this time without activity, claims go to an agent that waits', '20m')
    .option('--cap <duration>', 'the longest life of a claim; a policy (maxLife) may say less', '4h')
    .option('--workspace <folder>', 'names are paths in the git worktree of this folder (default: the present folder)')
    .option('--no-workspace', 'names are free names, not paths')
    .action(async (flags: McpFlags, self: Command) => {
      const given = (flags.agent ?? process.env.LEASEHOLD_AGENT) || undefined
      const bound = flags.bindPid === undefined ? hostProcess() : boundProcess(flags.bindPid)
      const name = agentName(given, bound, flags.agent === undefined ? 'LEASEHOLD_AGENT' : '--agent')
      const idle = parseDuration(flags.idle, '--idle')
      const cap = parseDuration(flags.cap, '--cap')
      const workspace =
        flags.workspace === false ? undefined : await workspaceOf(typeof flags.workspace === 'string' ? flags.workspace : process.cwd())
      if (typeof flags.workspace === 'string' && workspace === undefined)
        throw usageError(`${flags.workspace} is not in a git worktree`, 'Name a folder of a checked-out repository, or use --no-workspace.')
      commandInput(self)
      const { serveMcpOverStdio } = await import('../../mcp/stdio.ts')
      await invoke(self, async ({ leases, signal }) => {
        await serveMcpOverStdio({
          leases,
          agent: {
            ...{ name, unnamed: given === undefined, idle, cap },
            ...(bound !== undefined && { process: bound, isAlive: () => isAlive(bound) }),
            ...(workspace !== undefined && { workspace }),
          },
          ...{ version: VERSION, stdin: process.stdin, stdout: process.stdout, signal },
          note: text => writeStderrLine(`leasehold mcp: ${text}`),
        })
      })
    })
}

function agentName(given: string | undefined, bound: AgentProcess | undefined, source: string): string {
  const name = given ?? `agent-${bound?.pid ?? process.ppid}`
  try {
    return checkAgentName(name)
  } catch (error) {
    throw usageError(`${source}: ${(error as LeaseError).message}`, 'Choose a name such as planner.')
  }
}

function boundProcess(text: string): { readonly pid: number; readonly started: string } {
  const pid = parseInteger(text, '--bind-pid')
  const bound = pid > 0 ? processOf(pid) : undefined
  if (bound === undefined)
    throw usageError(`there is no process ${text} to bind to`, 'Pass the pid of the agent, such as --bind-pid $PPID.')
  return bound
}
