/** Real clients and real servers with a simulated network between them: all of a remote lessor except its sockets. */
import type { Lessor } from '../src/lessor.ts'
import type { Replica } from '../src/replica/replica.ts'
import { HttpLessor } from '../src/wire/http/client.ts'
import { RemoteLessor } from '../src/wire/resp/client.ts'
import { Network } from './network.ts'
import type { Host, Site } from './participants.ts'
import { SimulatedServer } from './server.ts'
import type { Machine } from './world.ts'

/** Simulated operators create policies and keys directly through a host, so these clients use the operator's secret. */
const OPERATOR = 'the-operators-own-secret'

export class RemoteAccess {
  readonly network: Network
  readonly #kind: 'resp' | 'http'
  readonly #hosts: readonly Host[]

  constructor(kind: 'resp' | 'http', { wire }: Site, hosts: readonly Host[]) {
    this.network = new Network(wire)
    this.#kind = kind
    this.#hosts = hosts
    for (const host of hosts) host.begins = replica => void this.#serve(host, replica)
  }

  async #serve(host: Host, replica: Replica): Promise<void> {
    try {
      this.network.servers.set(host, await SimulatedServer.open(host, replica, OPERATOR))
    } catch {
      // The replica ended before the server was ready.
    }
  }

  /** A graceful stop: the server closes first, then the replica writes its last marks. */
  async stop(host: Host): Promise<void> {
    await this.network.servers.get(host)?.close()
    await host.close()
  }

  connect(machine: Machine): Promise<Lessor> {
    const clock = machine.clock()
    const { network } = this
    if (this.#kind === 'resp') {
      const dials = this.#hosts.map(host => network.dial(machine, host))
      return RemoteLessor.open({ dials, key: OPERATOR, clock, timeout: 5_000, connectWithin: 3_000 })
    }
    const host = this.#hosts[machine.dice.whole(0, this.#hosts.length - 1)]!
    return HttpLessor.open('http://127.0.0.1:7420', { key: OPERATOR, clock, fetch: network.fetch(machine, host) })
  }
}
