/** Official MCP clients of both revisions, connected to the built program or to a server, and a check of every result against its schema. */
import { Client as Client2, StreamableHTTPClientTransport as Http2 } from '@modelcontextprotocol/client'
import { StdioClientTransport as Stdio2 } from '@modelcontextprotocol/client/stdio'
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport as Stdio1 } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport as Http1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { TSchema } from 'typebox'
import { Compile } from 'typebox/compile'

/** The clients that hosts have: the 1.x client, and the 2.x client with each way to agree on a revision. */
export const CLIENTS = ['1.x', '2.x, revision of 2025', '2.x, revision of 2026', '2.x, automatic'] as const
export type ClientKind = (typeof CLIENTS)[number]

const REVISION_2026 = '2026-07-28'

export interface ListedTool {
  readonly name: string
  readonly description?: string | undefined
  readonly inputSchema: object
  readonly outputSchema?: object | undefined
  readonly annotations?: Readonly<Record<string, unknown>> | undefined
}

export interface ToolAnswer {
  readonly status: string
  readonly error?: { readonly code: string; readonly message: string; readonly next: string }
  readonly notices: readonly { readonly kind: string; readonly names: readonly string[]; readonly text: string; readonly by?: string }[]
  // biome-ignore lint/suspicious/noExplicitAny: the fields of each tool; its schema is checked
  readonly [field: string]: any
}

export interface StdioProgram {
  readonly args: readonly string[]
  readonly cwd: string
  readonly env?: Readonly<Record<string, string>>
}

export class McpClient implements AsyncDisposable {
  readonly #client: Client1 | Client2
  readonly #schemas = new Map<string, ReturnType<typeof Compile>>()
  tools: readonly ListedTool[] = []
  /** Of the program over stdio. */
  pid: number | undefined

  private constructor(client: Client1 | Client2) {
    this.#client = client
  }

  static #new(kind: ClientKind): Client1 | Client2 {
    const info = { name: 'test', version: '1.0.0' }
    if (kind === '1.x') return new Client1(info)
    if (kind === '2.x, revision of 2025') return new Client2(info, { versionNegotiation: { mode: 'legacy' } })
    return new Client2(info, { versionNegotiation: { mode: kind === '2.x, automatic' ? 'auto' : { pin: REVISION_2026 } } })
  }

  static async stdio(kind: ClientKind, { args, cwd, env = {} }: StdioProgram): Promise<McpClient> {
    const client = new McpClient(McpClient.#new(kind))
    const options = {
      command: process.execPath,
      args: [...args],
      cwd,
      env: { ...(process.env as Record<string, string>), ...env },
      stderr: 'ignore' as const,
    }
    const transport = kind === '1.x' ? new Stdio1(options) : new Stdio2(options)
    await client.#client.connect(transport as never)
    client.pid = (transport as { pid: number | null }).pid ?? undefined
    return client.#listed()
  }

  static async http(kind: ClientKind, url: string, headers: Readonly<Record<string, string>> = {}): Promise<McpClient> {
    const client = new McpClient(McpClient.#new(kind))
    const options = { requestInit: { headers: { ...headers } } }
    await client.#client.connect((kind === '1.x' ? new Http1(new URL(url), options) : new Http2(new URL(url), options)) as never)
    return client.#listed()
  }

  async #listed(): Promise<McpClient> {
    this.tools = (await this.#client.listTools()).tools as readonly ListedTool[]
    for (const { name, outputSchema } of this.tools) this.#schemas.set(name, Compile(outputSchema as TSchema))
    return this
  }

  /** Calls a tool. Throws if the result does not match the schema that the server published for it. */
  async call(name: string, args: object = {}): Promise<ToolAnswer> {
    const result = (await this.#client.callTool({ name, arguments: args as Record<string, unknown> })) as {
      readonly structuredContent?: unknown
      readonly content: readonly { readonly type: string; readonly text?: string }[]
      readonly isError?: boolean
    }
    const answer = result.structuredContent as ToolAnswer
    const schema = this.#schemas.get(name)
    if (schema !== undefined && !schema.Check(answer))
      throw new Error(
        `${name} answered ${JSON.stringify(answer)}, which its schema does not allow: ${JSON.stringify(schema.Errors(answer)[0])}`,
      )
    if (JSON.stringify(JSON.parse(result.content[0]!.text!)) !== JSON.stringify(answer)) throw new Error('text and structure differ')
    if ((result.isError === true) !== (answer.status === 'refused')) throw new Error(`isError is ${result.isError} for ${answer.status}`)
    if (Object.keys(answer).at(-1) !== 'notices') throw new Error('the notices are not at the end')
    return answer
  }

  close(): Promise<void> {
    return this.#client.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}
