/** A real server on a host's replica: its guarded lessor, RESP listener and HTTP handler. Only the sockets are simulated. */
import type { Clock } from '../src/clock.ts'
import { LeaseError } from '../src/errors.ts'
import type { Face } from '../src/face/face.ts'
import type { Lessor } from '../src/lessor.ts'
import type { Replica } from '../src/replica/replica.ts'
import { CallerTurns } from '../src/server/caller-turns.ts'
import { setFaceRules } from '../src/server/face-rules.ts'
import { GuardedLessor } from '../src/server/guarded-lessor.ts'
import { HttpHandler } from '../src/server/http/handler.ts'
import { DEFAULT_LIMITS } from '../src/server/limits.ts'
import type { ListenerContext } from '../src/server/listener.ts'
import { RespListener } from '../src/server/resp/resp-listener.ts'
import { type Host, HostLessor } from './participants.ts'

const SILENT = { debug() {}, info() {}, warn() {}, error() {} }

export class SimulatedServer {
  readonly resp: RespListener
  readonly http: HttpHandler
  readonly replica: Replica
  readonly #guarded: GuardedLessor
  readonly #closing: AbortController

  private constructor(replica: Replica, guarded: GuardedLessor, closing: AbortController, context: ListenerContext) {
    this.replica = replica
    this.#guarded = guarded
    this.#closing = closing
    this.resp = new RespListener(context)
    this.http = new HttpHandler(context)
  }

  /** `operator`: the secret that gives a client all rights. */
  static open(host: Host, replica: Replica, operator: string): Promise<SimulatedServer> {
    return SimulatedServer.on(new HostLessor(host, replica), replica, host.machine.clock(), operator)
  }

  static async on(lessor: Lessor, replica: Replica, clock: Clock, operator: string, faces: readonly Face[] = []): Promise<SimulatedServer> {
    await setFaceRules(lessor, faces)
    const guarded = await GuardedLessor.open({
      lessor,
      clock,
      operator,
      turns: new CallerTurns(clock, { slice: Number.POSITIVE_INFINITY }),
    })
    const closing = new AbortController()
    const context = {
      ...{ guarded, clock, limits: DEFAULT_LIMITS, log: SILENT, closing: closing.signal },
      figures: () => ({}),
      connections: () => 0,
      faces,
    }
    return new SimulatedServer(replica, guarded, closing, context)
  }

  /** Fires when the server begins to stop. */
  get closing(): AbortSignal {
    return this.#closing.signal
  }

  /** Stops as a graceful stop does: requests in progress are answered, watches and waits end. */
  async close(): Promise<void> {
    this.#closing.abort(new LeaseError('UNAVAILABLE', 'this server is stopping'))
    await this.resp.close()
    await this.#guarded[Symbol.asyncDispose]()
  }
}
