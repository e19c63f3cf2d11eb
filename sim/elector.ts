/**
 * A client of the Kubernetes face: it is elected by writing its name into a Lease object, as client-go does, and leads for the time that the object says.
 * Sometimes it stops leading and gives the name back by a native command, which the face does not see, and goes on with its renewals.
 */
import type { Clock } from '../src/clock.ts'
import { LeaseError } from '../src/errors.ts'
import { kubernetesFace } from '../src/face/kubernetes/kubernetes-face.ts'
import { findLease } from '../src/kernel/state/leases.ts'
import { LIVE } from '../src/kernel/state.ts'
import type { Replica } from '../src/replica/replica.ts'
import { Held } from './holder.ts'
import { FACE_NAME } from './mixed-wishes.ts'
import type { Network } from './network.ts'
import { type Host, HostLessor, pauseOn, type Site } from './participants.ts'
import { SimulatedServer } from './server.ts'
import type { Dice, Machine } from './world.ts'

/** The key of electors, which may act for the store itself. */
const SECRET = 'the-operators-own-secret'
const PATH = 'http://127.0.0.1:7420/apis/coordination.k8s.io/v1/namespaces/default/leases'
const SECONDS = 1
/** A request without an answer is given up. */
const TIMEOUT = 1_000

export interface ElectorOptions {
  readonly name: string
  readonly machine: Machine
  readonly host: Host
  readonly fetch: typeof fetch
  /** Leads for ever: it is never silent, and never resigns. */
  readonly steady?: boolean
}

interface LeaseObject {
  readonly metadata: { readonly resourceVersion: string }
  readonly spec: { readonly holderIdentity?: string }
}

/** Serves the Kubernetes face from a host, for its electors. */
export async function serveElectors(network: Network, host: Host, replica: Replica): Promise<void> {
  const lessor = new HostLessor(host, replica)
  try {
    network.servers.set(host, await SimulatedServer.on(lessor, replica, host.machine.clock(), SECRET, [kubernetesFace()]))
  } catch (error) {
    if (!(error instanceof LeaseError)) throw error // the replica ended before the server was ready
  }
}

export class Elector {
  readonly name: string
  readonly #site: Site
  readonly #options: ElectorOptions
  readonly #clock: Clock
  readonly #dice: Dice
  readonly #life: number
  #held: Held | undefined
  #count = 0
  stopped = false

  constructor(site: Site, options: ElectorOptions) {
    this.#site = site
    this.#options = options
    this.name = options.name
    this.#clock = options.machine.clock()
    this.#dice = options.machine.dice
    this.#life = options.machine.life
  }

  stop(): void {
    this.stopped = true
  }

  async live(): Promise<void> {
    const { machine } = this.#options
    while (!this.stopped && machine.life === this.#life) {
      await pauseOn(this.#clock, this.#options.steady === true ? SECONDS * 400 : this.#dice.between(80, 300))
      await this.#round()
      if (this.#options.steady === true) continue
      if (this.#held?.holds() === true && this.#dice.chance(0.1)) await this.#resign(this.#held)
      // Sometimes it is silent for longer than its term.
      if (this.#dice.chance(0.05)) await pauseOn(this.#clock, 1_500)
    }
  }

  async #round(): Promise<void> {
    const found = await this.#call('GET', '/ctl')
    if (found === undefined) return
    const body = {
      ...{ apiVersion: 'coordination.k8s.io/v1', kind: 'Lease' },
      metadata: {
        name: 'ctl',
        namespace: 'default',
        ...(found.status === 200 && { resourceVersion: found.body.metadata.resourceVersion }),
      },
      spec: { holderIdentity: this.name, leaseDurationSeconds: SECONDS, renewTime: this.#time() },
    }
    const { world } = this.#site
    const held = new Held(this.name, this.#clock)
    const sent = held.mark(world.now)
    const answer = found.status === 200 ? await this.#call('PUT', '/ctl', body) : await this.#call('POST', '', body)
    if (answer === undefined || answer.status >= 300) return
    this.#elected(held, () => held.believe(sent, SECONDS * 1_000))
  }

  /** The face has answered that this client leads. */
  #elected(held: Held, believe: () => void): void {
    const { referee, world } = this.#site
    const { state } = referee
    const lease = state.entries.get(`${FACE_NAME}/holder`)?.lease
    // Ended since the answer: its term protects it, and it is not judged.
    if (lease === undefined || lease.holder.name !== this.name || lease.status !== LIVE) return
    const grant = lease.grants.find(({ resource }) => resource.name === FACE_NAME)
    if (grant === undefined)
      return world.violate('S1', `the face answered that ${this.name} leads by lease ${lease.id}, which does not hold ${FACE_NAME}`)
    held.lease = lease.id
    held.grants = [{ resource: FACE_NAME, units: 1, shared: false, token: grant.token }]
    believe()
    this.#held?.stop()
    this.#held = held
    referee.beliefs.begins(held)
  }

  /** Stops leading, and gives the name back natively; its lease stays. */
  async #resign(held: Held): Promise<void> {
    held.stop()
    if (findLease(this.#site.referee.state, held.lease) === undefined) return
    await this.#options.host.propose({ kind: 'release', lease: held.lease, resource: FACE_NAME }).catch(error => {
      if (!(error instanceof LeaseError)) throw error
    })
  }

  /** Another time in each object, so that every write changes it. */
  #time(): string {
    return `2026-01-01T00:00:00.${String(++this.#count).padStart(6, '0')}Z`
  }

  async #call(method: string, path: string, body?: object): Promise<{ readonly status: number; readonly body: LeaseObject } | undefined> {
    const over = new AbortController()
    const cancel = this.#clock.after(TIMEOUT, () => over.abort(new LeaseError('UNAVAILABLE', 'no answer')))
    try {
      const answer = await this.#options.fetch(PATH + path, {
        ...{
          method,
          headers: { 'content-type': 'application/json', authorization: `Bearer ${SECRET}` },
          signal: over.signal,
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      })
      return { status: answer.status, body: JSON.parse((await answer.text()) || '{}') as LeaseObject }
    } catch {
      return undefined // the connection failed, or there was no answer in time
    } finally {
      cancel()
    }
  }
}
