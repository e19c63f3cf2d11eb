/** A server of the Model Context Protocol whose tools act for agents. It has no state: the same for stdio and HTTP, and for both revisions. */
import type { JsonSchemaType, JsonSchemaValidator, jsonSchemaValidator, McpServer } from '@modelcontextprotocol/server'
import type { Agent } from '../agent/agent.ts'
import { MAX_NAMES } from '../agent/names.ts'
import type { Notice } from '../agent/notices.ts'
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { firstError, matches } from '../server/http/first-error.ts'
import { bounded, failureView } from './answer.ts'
import { ARGUMENTS, RESULTS } from './schemas.ts'
import type { ServerSdk } from './sdk.ts'
import { INSTRUCTIONS, TOOLS, type Tool, type ToolName } from './tools.ts'

/** Finds the agent of a call. */
export type AgentOf = (subAgent: string | undefined) => Promise<Agent>

export interface McpServerOptions {
  readonly sdk: ServerSdk
  readonly version: string
  readonly clock: Clock
  readonly agentOf: AgentOf
  /** See `ToolCall`. */
  readonly isPortFree?: (port: number) => Promise<boolean>
  /** Gets errors that are bugs, for a log. */
  readonly onError: (error: unknown) => void
}

/** Arguments are checked by the tools, so that a wrong one is answered with a code and the next step, as any other refusal. */
const UNCHECKED: jsonSchemaValidator = {
  getValidator<T>(): JsonSchemaValidator<T> {
    return input => ({ valid: true, data: input as T, errorMessage: undefined })
  },
}

export function createMcpServer(options: McpServerOptions): McpServer {
  const { sdk, version } = options
  const server = new sdk.McpServer({ name: 'leasehold', title: 'Leasehold', version }, { instructions: INSTRUCTIONS })
  for (const name of Object.keys(TOOLS) as ToolName[]) {
    const { title, description, readOnly, destructive } = TOOLS[name]
    server.registerTool(
      name,
      {
        ...{ title, description },
        inputSchema: sdk.fromJsonSchema(ARGUMENTS[name] as unknown as JsonSchemaType, UNCHECKED),
        outputSchema: sdk.fromJsonSchema(RESULTS[name] as unknown as JsonSchemaType, UNCHECKED),
        // All of them may be repeated: nothing is done twice. None reaches beyond the lease service.
        annotations: { readOnlyHint: readOnly, destructiveHint: destructive, idempotentHint: true, openWorldHint: false },
      },
      async (args: unknown, { mcpReq }: { readonly mcpReq: { readonly signal: AbortSignal } }) => {
        const answer = await callTool(options, name, args, mcpReq.signal)
        return {
          content: [{ type: 'text' as const, text: JSON.stringify(answer) }],
          structuredContent: answer,
          ...(answer.status === 'refused' && { isError: true }),
        }
      },
    )
  }
  return server
}

type ToolAnswer = { readonly status: string; readonly [field: string]: unknown }

/** Runs a tool. Nothing is thrown: a failure is an answer with a code. The notices come last. */
export async function callTool(
  { clock, agentOf, onError, isPortFree }: Pick<McpServerOptions, 'clock' | 'agentOf' | 'onError' | 'isPortFree'>,
  name: ToolName,
  given: unknown,
  signal: AbortSignal,
): Promise<ToolAnswer> {
  let agent: Agent | undefined
  let answer: ToolAnswer
  try {
    const args = checked(name, given)
    agent = await agentOf(args.sub_agent)
    const tool = TOOLS[name] as Tool
    answer = (await tool.run(agent, args as never, {
      now: clock.wall(),
      signal,
      ...(isPortFree !== undefined && { isPortFree }),
    })) as ToolAnswer
  } catch (error) {
    if (!(error instanceof LeaseError)) onError(error)
    answer = { status: 'refused', error: failureView(error) }
  }
  return { ...answer, notices: await noticesOf(agent) }
}

async function noticesOf(agent: Agent | undefined): Promise<readonly Notice[]> {
  if (agent === undefined) return []
  try {
    return bounded(await agent.notices())
  } catch {
    return [] // they stay for the next call
  }
}

function checked(name: ToolName, given: unknown): { readonly sub_agent?: string } {
  const args = given ?? {}
  const schema = ARGUMENTS[name]
  // Counted first: a list of ten thousand names must not cost as many checks.
  if (!matches(schema, shortened(args))) throw new LeaseError('INVALID', `the arguments of ${name}: ${firstError(schema, shortened(args))}`)
  return args as { readonly sub_agent?: string }
}

/** Lists that are too long are left to the agent, which refuses them by their length alone. */
function shortened(args: unknown): unknown {
  if (typeof args !== 'object' || args === null) return args
  const { names } = args as { readonly names?: unknown }
  return Array.isArray(names) && names.length > MAX_NAMES ? { ...args, names: ['x'] } : args
}
