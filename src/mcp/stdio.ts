/**
 * MCP over standard input and output: one agent, whose session this process keeps alive. It ends with the end of the input, with a signal, or
 * with the process that it is bound to, and everything that the agent claimed is free then.
 */

import { createServer } from 'node:net'
import type { Readable, Writable } from 'node:stream'
import { Agent, type AgentOptions } from '../agent/agent.ts'
import { BACKOFF } from '../backoff.ts'
import { pause } from '../clock.ts'
import { isRefusal, LeaseError } from '../errors.ts'
import type { Leases } from '../leases.ts'
import { createMcpServer } from './mcp-server.ts'
import { loadServerSdk, loadStdioSdk } from './sdk.ts'
import { SubAgents } from './sub-agents.ts'

export interface McpStdioOptions {
  readonly leases: Leases
  readonly agent: AgentOptions
  readonly version: string
  readonly stdin: Readable
  readonly stdout: Writable
  /** Ends it. */
  readonly signal: AbortSignal
  /** Gets a line for people. */
  readonly note: (text: string) => void
}

/** The longest message of a client. */
const MAX_MESSAGE_BYTES = 1 << 20
const RETRY = BACKOFF.round.longest
/** The request by which a client of the 2026 revision asks for versions and capabilities. */
const PROBE = 'server/discover'
/** The process waits this long for the release of everything before it ends. Then it lapses. */
const END_TIMEOUT = 3_000

/** Resolves when the input has ended, `signal` has fired, or the bound process is gone. */
export async function serveMcpOverStdio({ leases, agent: options, version, stdin, stdout, signal, note }: McpStdioOptions): Promise<void> {
  const [sdk, { serveStdio, StdioServerTransport }] = await Promise.all([loadServerSdk(), loadStdioSdk()])
  const ended = new AbortController()
  const end = () => ended.abort()
  const onSignal = () => end()
  signal.addEventListener('abort', onSignal, { once: true })
  stdin.once('end', end)
  stdin.once('close', end)
  stdin.once('error', end)
  stdout.once('error', end) // the client has gone
  const agents = new OpeningAgent(leases, options, ended, note)
  const transport = new StdioServerTransport(stdin, stdout, { maxBufferSize: MAX_MESSAGE_BYTES })
  const handle = serveStdio(
    () =>
      createMcpServer({
        ...{ sdk, version, clock: leases.clock, isPortFree },
        agentOf: subAgent => agents.of(subAgent),
        onError: error => note(`internal error: ${String((error as Error)?.stack ?? error)}`),
      }),
    { transport, onerror: error => note(error.message) },
  )
  const receive = transport.onmessage!
  transport.onmessage = message => {
    // A client may start a second process only to ask what this program is. That one must not take the name of the agent.
    if ('method' in message && message.method !== PROBE) void agents.start()
    receive(message)
  }
  try {
    if (!ended.signal.aborted) await new Promise<void>(resolve => ended.signal.addEventListener('abort', () => resolve(), { once: true }))
  } finally {
    signal.removeEventListener('abort', onSignal)
    await agents.end()
    await handle.close().catch(() => {})
  }
}

/** Returns whether this machine has nothing on a port: for IPv4 and IPv6, since either would be in the way. */
async function isPortFree(port: number): Promise<boolean> {
  if (!(port >= 1 && port <= 65_535)) return false
  for (const host of ['0.0.0.0', '127.0.0.1', '::1']) if (!(await canListen(port, host))) return false
  return true
}

function canListen(port: number, host: string): Promise<boolean> {
  return new Promise(resolve => {
    const server = createServer()
    // A machine without IPv6 has no program there.
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code !== 'EADDRINUSE' && error.code !== 'EACCES'))
    server.listen({ port, host, exclusive: true }, () => server.close(() => resolve(true)))
  })
}

/** Opens the agent when its client begins, and again until the store answers: the name must be taken before a hook of the same agent acts. */
class OpeningAgent {
  readonly #leases: Leases
  readonly #ended: AbortController
  readonly #open: () => Promise<Agent>
  #opening: Promise<Agent> | undefined
  #agent: Agent | undefined
  #subAgents: SubAgents | undefined
  #failure: unknown

  constructor(leases: Leases, options: AgentOptions, ended: AbortController, note: (text: string) => void) {
    this.#leases = leases
    this.#ended = ended
    this.#open = () => this.#begin(options, note)
  }

  start(): Promise<Agent> {
    if (this.#opening === undefined) {
      this.#opening = this.#open()
      this.#opening.catch(() => {}) // each call answers with it
    }
    return this.#opening
  }

  async #begin(options: AgentOptions, note: (text: string) => void): Promise<Agent> {
    for (;;) {
      try {
        const agent = await Agent.begin(this.#leases, options)
        this.#agent = agent
        this.#subAgents = new SubAgents(agent)
        agent.signal.addEventListener('abort', () => this.#ended.abort(), { once: true })
        note(`agent ${agent.name}: ready`)
        return agent
      } catch (error) {
        this.#failure = error
        if (isRefusal(error) || this.#ended.signal.aborted) throw error
        note(`the store does not answer, trying again: ${(error as Error).message}`)
        await pause(this.#leases.clock, RETRY, this.#ended.signal)
      }
    }
  }

  async of(subAgent: string | undefined): Promise<Agent> {
    if (this.#subAgents === undefined && this.#failure !== undefined && !isRefusal(this.#failure))
      throw new LeaseError('UNAVAILABLE', `the store does not answer: ${(this.#failure as Error).message}`, { cause: this.#failure })
    await this.start()
    return this.#subAgents!.of(subAgent)
  }

  async end(): Promise<void> {
    if (this.#agent === undefined) return
    const tooLate = new AbortController()
    const late = pause(this.#leases.clock, END_TIMEOUT, tooLate.signal, { ref: true }).catch(() => {})
    await Promise.race([this.#agent.end().catch(() => {}), late]) // what could not be released lapses
    tooLate.abort()
  }
}
