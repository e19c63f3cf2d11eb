/** The agent of Consul: services and their checks. The whole registry is one agent: an ID names a service wherever its client runs. */
import { LeaseError } from '../../errors.ts'
import type { Instance } from '../../registry/match.ts'
import type { FaceCaller } from '../face.ts'
import { type FoundInstance, Registrations } from '../registrations.ts'
import { mapInSlices } from '../slices.ts'
import { TextFailure } from '../text-failure.ts'
import { bodyFields, type ConsulEndpoint, DATACENTER, DONE, fieldsAnswer, json, listAnswer, NODE, textField } from './protocol.ts'
import {
  checkFrom,
  declaredBy,
  recordOf,
  registrationFrom,
  type ServiceRegistration,
  shownChecks,
  shownService,
  statusOf,
  withChecks,
} from './service-record.ts'

/** Names that are remembered, to find a service by its ID alone. One that is not is searched for. */
const MAX_REMEMBERED = 100_000

type InstanceNames = Pick<Instance, 'service' | 'instance'>

/** Finds services by their ID and by the ID of a check. What it remembers is only where to look. */
export class AgentIndex {
  readonly #services = new Map<string, InstanceNames>()
  readonly #checks = new Map<string, InstanceNames>()

  remember(instance: Instance): void {
    const names = { service: instance.service, instance: instance.instance }
    for (const [map, id] of [
      [this.#services, instance.instance] as const,
      ...recordOf(instance).checks.map(({ id }) => [this.#checks, id] as const),
    ]) {
      if (map.size >= MAX_REMEMBERED) map.clear()
      map.set(id, names)
    }
  }

  async byService(registrations: Registrations, id: string): Promise<FoundInstance | undefined> {
    const known = await this.#remembered(registrations, this.#services.get(id))
    if (known?.instance.instance === id) return known
    for (const service of await registrations.servicesWith(id)) {
      const found = await registrations.find({ service, instance: id })
      if (found === undefined) continue
      this.remember(found.instance)
      return found
    }
    return undefined
  }

  async byCheck(caller: FaceCaller, registrations: Registrations, id: string): Promise<FoundInstance | undefined> {
    const hasCheck = (instance: Instance) => recordOf(instance).checks.some(check => check.id === id)
    const known = await this.#remembered(registrations, this.#checks.get(id))
    if (known !== undefined && hasCheck(known.instance)) return known
    let match: Instance | undefined
    const { all } = await registrations.list()
    await mapInSlices(caller, all, instance => {
      this.remember(instance)
      if (match === undefined && hasCheck(instance)) match = instance
    })
    return match && registrations.find(match)
  }

  async #remembered(registrations: Registrations, names: InstanceNames | undefined): Promise<FoundInstance | undefined> {
    return names && findReadable(registrations, names)
  }
}

/** Another client may have asked for this ID before: a service that this caller may not read is not there for it, and not named in a refusal. */
async function findReadable(registrations: Registrations, names: InstanceNames): Promise<FoundInstance | undefined> {
  try {
    return await registrations.find(names)
  } catch (error) {
    if (LeaseError.is(error, 'FORBIDDEN')) return undefined
    throw error
  }
}

async function register({ registration, ttl, grace, status }: ServiceRegistration, caller: FaceCaller): Promise<void> {
  const registrations = new Registrations(caller)
  const former = await registrations.find(registration)
  const declared = former?.declared ?? { status, load: 0 }
  await registrations.register(registration, declared, { ttl, grace })
}

const unknownService = (id: string) =>
  new TextFailure(404, `Unknown service ID ${JSON.stringify(id.slice(0, 64))}. Ensure that the service ID is passed, not the service name.`)
const unknownCheck = (id: string) =>
  new TextFailure(404, `Unknown check ID ${JSON.stringify(id.slice(0, 64))}. Ensure that the check ID is passed, not the check name.`)

export function agentEndpoints(index: AgentIndex, version: string): readonly ConsulEndpoint[] {
  const service = async (caller: FaceCaller, id: string) => {
    const found = await index.byService(new Registrations(caller), id)
    if (found === undefined) throw unknownService(id)
    return found
  }
  const update = async (caller: FaceCaller, id: string, word: string) => {
    const registrations = new Registrations(caller)
    const found = await index.byCheck(caller, registrations, id)
    const status = declaredBy(word)
    if (status === undefined) throw new TextFailure(400, `Invalid check status: ${JSON.stringify(word.slice(0, 32))}`)
    if (found === undefined || !recordOf(found.instance).checks.some(check => check.id === id)) throw unknownCheck(id)
    if (recordOf(found.instance).checks.find(check => check.id === id)?.probe !== undefined)
      throw new TextFailure(500, `CheckID ${JSON.stringify(id.slice(0, 64))} does not have associated TTL`)
    // Maintenance is over when an operator says so, not when a check passes.
    const isKept = found.declared.status === 'maintenance' || found.declared.status === 'draining'
    if (!(await registrations.keep(found, isKept ? found.declared.status : status))) throw unknownCheck(id)
    return DONE
  }
  const changeChecks = async (caller: FaceCaller, { instance }: FoundInstance, checks: ReturnType<typeof recordOf>['checks']) => {
    await register(withChecks(instance, checks), caller)
    return DONE
  }
  return [
    {
      method: 'PUT',
      path: '/v1/agent/service/register',
      answer: async (request, caller) => {
        await register(registrationFrom(await bodyFields(request), caller.address ?? ''), caller)
        return DONE
      },
    },
    {
      method: 'PUT',
      path: '/v1/agent/service/deregister/',
      answer: async (_, caller, id) => {
        await new Registrations(caller).remove(await service(caller, id))
        return DONE
      },
    },
    {
      method: 'PUT',
      path: '/v1/agent/service/maintenance/',
      answer: async ({ query }, caller, id) => {
        const enable = query.get('enable')
        if (enable !== 'true' && enable !== 'false') throw new TextFailure(400, 'Missing value for enable')
        const found = await service(caller, id)
        const status = enable === 'true' ? 'maintenance' : found.declared.status === 'maintenance' ? 'passing' : found.declared.status
        if (!(await new Registrations(caller).keep(found, status))) throw unknownService(id)
        return DONE
      },
    },
    {
      method: 'PUT',
      path: '/v1/agent/check/register',
      answer: async (request, caller) => {
        const fields = await bodyFields(request)
        const id = textField(fields, 'ServiceID')
        if (id === '') throw new TextFailure(400, 'checks of the node are not kept here: name a ServiceID')
        const found = await service(caller, id)
        const check = checkFrom(fields, id, 0)
        const named = textField(fields, 'ID') || textField(fields, 'Name')
        const others = recordOf(found.instance).checks.filter(known => known.id !== (named || check.id))
        return changeChecks(caller, found, [...others, named === '' ? check : { ...check, id: named }])
      },
    },
    {
      method: 'PUT',
      path: '/v1/agent/check/deregister/',
      answer: async (_, caller, id) => {
        const found = await index.byCheck(caller, new Registrations(caller), id)
        if (found === undefined) throw unknownCheck(id)
        return changeChecks(
          caller,
          found,
          recordOf(found.instance).checks.filter(check => check.id !== id),
        )
      },
    },
    ...(['pass', 'warn', 'fail'] as const).map(
      (word): ConsulEndpoint => ({ method: 'PUT', path: `/v1/agent/check/${word}/`, answer: (_, caller, id) => update(caller, id, word) }),
    ),
    {
      method: 'PUT',
      path: '/v1/agent/check/update/',
      answer: async (request, caller, id) => update(caller, id, textField(await bodyFields(request), 'Status')),
    },
    {
      method: 'GET',
      path: '/v1/agent/services',
      answer: async (_, caller) =>
        fieldsAnswer(caller, (await new Registrations(caller).list()).all, ({ instance }) => instance, shownService),
    },
    {
      method: 'GET',
      path: '/v1/agent/service/',
      answer: async (_, caller, id) => json(shownService((await service(caller, id)).instance)),
    },
    {
      method: 'GET',
      path: '/v1/agent/checks',
      answer: async (_, caller) => {
        const checks = await mapInSlices(caller, (await new Registrations(caller).list()).all, shownChecks)
        const idOf = (check: object) => (check as { CheckID: string }).CheckID
        return fieldsAnswer(caller, checks.flat(), idOf, check => check)
      },
    },
    {
      method: 'GET',
      path: '/v1/agent/health/service/id/',
      answer: async (_, caller, id) => {
        const { instance } = await service(caller, id)
        return { ...json(shownHealth(instance)), status: statusOfAll([statusOf(instance)]) }
      },
    },
    {
      method: 'GET',
      path: '/v1/agent/health/service/name/',
      answer: async (_, caller, name) => {
        const { all: instances } = await new Registrations(caller).list(name)
        if (instances.length === 0) throw new TextFailure(404, `ServiceName ${name.slice(0, 64)} Not Found`)
        const status = statusOfAll(await mapInSlices(caller, instances, statusOf))
        return { ...(await listAnswer(caller, instances, shownHealth)), status }
      },
    },
    {
      method: 'GET',
      path: '/v1/agent/self',
      answer: () =>
        json({
          Config: {
            Datacenter: DATACENTER,
            PrimaryDatacenter: DATACENTER,
            NodeName: NODE,
            NodeID: '',
            Server: true,
            Revision: '',
            Version: version,
          },
          Member: { Name: NODE, Addr: '127.0.0.1', Port: 8301, Tags: { dc: DATACENTER, role: 'consul' }, Status: 1 },
          Stats: {},
          Meta: {},
        }),
    },
    {
      method: 'GET',
      path: '/v1/agent/members',
      answer: () => json([{ Name: NODE, Addr: '127.0.0.1', Port: 8301, Tags: { dc: DATACENTER, role: 'consul' }, Status: 1 }]),
    },
  ]
}

const HEALTH_STATUSES = { passing: 200, warning: 429, critical: 503 } as const

function statusOfAll(statuses: readonly ReturnType<typeof statusOf>[]): number {
  return HEALTH_STATUSES[(['critical', 'warning', 'passing'] as const).find(status => statuses.includes(status))!]
}

function shownHealth(instance: Instance): object {
  return { AggregatedStatus: statusOf(instance), Service: shownService(instance), Checks: shownChecks(instance) }
}
