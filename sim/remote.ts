/** Real clients and real servers, with a network between them that is not: everything of a lessor far away but its sockets. */
import type { Lessor } from '../src/lessor.ts'
import type { Replica } from '../src/replica/replica.ts'
import { HttpLessor } from '../src/wire/http/client.ts'
import { RemoteLessor } from '../src/wire/resp/client.ts'
import { Network } from './network.ts'
import type { Host, Site } from './participants.ts'
import { SimulatedServer } from './server.ts'
import type { Machine } from './world.ts'

/** Operators and policies come from elsewhere, and keys with them: the clients here speak for the store itself. */
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
      // The replica ended before anyone was served.
    }
  }

  /** As the last thing of a graceful stop, the replica leaves its marks. */
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
