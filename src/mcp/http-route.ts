/**
 * MCP over HTTP: `POST /mcp` of a server. Keys, limits and the checks of Host and Origin are those of every other route. There is no MCP session:
 * an agent is found by its name and key, so a client of either revision may come back by another connection, or after a restart.
 */
import type { AuthInfo, McpHttpHandler } from '@modelcontextprotocol/server'
import { Type } from 'typebox'
import { LeaseError } from '../errors.ts'
import type { Caller } from '../server/access-control.ts'
import { HttpFailure } from '../server/http/failure.ts'
import { type HttpRequest, type HttpResponse, type Route, type RouteContext, route } from '../server/http/route.ts'
import type { ListenerContext } from '../server/listener.ts'
import { VERSION } from '../server/version.ts'
import { HttpAgents } from './http-agents.ts'
import { type AgentOf, createMcpServer } from './mcp-server.ts'
import { loadServerSdk } from './sdk.ts'

/** Headers that the protocol uses. All others stay here: the SDK needs no key. */
const HEADERS = ['accept', 'content-type', 'mcp-protocol-version', 'mcp-session-id', 'mcp-method', 'mcp-name', 'last-event-id'] as const
/** Room for a claim of 256 long names. */
const MAX_MESSAGE_BYTES = 256 << 10
const AGENT_HEADER = 'leasehold-agent'
const UNNAMED = 'which agent are you? Add ?agent=NAME to the address of this MCP server, or send the header Leasehold-Agent: NAME'

export function mcpRoute(): Route {
  let endpoint: Promise<McpEndpoint> | undefined
  return route({
    method: 'POST',
    path: '/mcp',
    summary: 'The Model Context Protocol, over streamable HTTP without sessions: claims for agents. Other methods are not used.',
    query: Type.Object({
      agent: Type.Optional(Type.String({ description: 'The name of the agent.' })),
      repository: Type.Optional(
        Type.String({
          description: 'The repository whose paths it claims, such as github.com/acme/app: the same names as in a folder of it.',
          maxLength: 400,
          pattern: '^[^/\\s]+(/[^/\\s]+)+$',
        }),
      ),
    }),
    body: Type.Unknown(),
    maxBodyBytes: ({ limits }) => Math.max(limits.body, MAX_MESSAGE_BYTES),
    handle: async (context: RouteContext<unknown, McpQuery>) => {
      endpoint ??= McpEndpoint.open(context)
      endpoint.catch(() => (endpoint = undefined))
      return (await endpoint).handle(context)
    },
  })
}

interface McpQuery {
  readonly agent?: string
  readonly repository?: string
}

/** Who calls, for the factory of the SDK. */
interface CallerInfo {
  readonly caller: Caller
  readonly agentOf: AgentOf
}

class McpEndpoint {
  readonly #handler: McpHttpHandler
  readonly #agents: HttpAgents

  private constructor(handler: McpHttpHandler, agents: HttpAgents) {
    this.#handler = handler
    this.#agents = agents
  }

  static async open({ guarded, clock, closing, log }: ListenerContext): Promise<McpEndpoint> {
    const sdk = await loadServerSdk()
    const handler = sdk.createMcpHandler(
      ({ authInfo }) =>
        createMcpServer({
          ...{ sdk, clock, version: VERSION },
          agentOf: (authInfo!.extra as unknown as CallerInfo).agentOf, // `handle` sets it
          onError: error => log.error({ error: String((error as Error)?.stack ?? error) }, 'an MCP tool failed with an internal error'),
        }),
      // No answer is longer than one message, and nothing is pushed: notices come with results.
      { maxSubscriptions: 1 },
    )
    closing.addEventListener('abort', () => void handler.close(), { once: true })
    return new McpEndpoint(handler, new HttpAgents(guarded, clock, closing))
  }

  async handle({ caller, request, body, query }: RouteContext<unknown, McpQuery>): Promise<HttpResponse> {
    const name = query.agent ?? request.header(AGENT_HEADER) ?? (caller.key === 0 ? undefined : caller.name)
    const { repository } = query
    return this.#agents.call(caller, { name: name ?? '', ...(repository !== undefined && { repository }) }, async find => {
      const agentOf: AgentOf = subAgent =>
        name === undefined ? Promise.reject(new LeaseError('INVALID', UNNAMED, { facts: { option: 'agent' } })) : find(subAgent)
      const authInfo: AuthInfo = { token: '', clientId: caller.name, scopes: [], extra: { caller, agentOf } satisfies CallerInfo }
      const response = await this.#handler.fetch(webRequest(request, body), { parsedBody: body, authInfo })
      return { status: response.status, ...typeOf(response), body: await response.text() }
    })
  }
}

function typeOf(response: Response): { readonly type?: string } {
  const type = response.headers.get('content-type')
  return type === null ? {} : { type }
}

function webRequest(request: HttpRequest, body: unknown): Request {
  const headers = new Headers()
  for (const name of HEADERS) {
    const value = request.header(name)
    if (value === undefined) continue
    try {
      headers.set(name, value)
    } catch {
      throw new HttpFailure('INVALID', `the header ${name} has a value that HTTP does not allow`)
    }
  }
  // The address is not used: the route is known, and Host and Origin are checked.
  return new Request('http://localhost/mcp', { method: 'POST', headers, body: JSON.stringify(body), signal: request.gone() })
}
