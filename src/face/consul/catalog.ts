/** The catalog and the health of services, as clients discover them: reads of the registry that can wait for a change. */
import { badName } from '../../kernel/name.ts'
import { SERVICES } from '../../registry/entry.ts'
import type { Instance } from '../../registry/match.ts'
import type { FaceCaller, HttpFaceRequest, HttpFaceResponse } from '../face.ts'
import { Registrations } from '../registrations.ts'
import { joined, mapInSlices } from '../slices.ts'
import { TextFailure } from '../text-failure.ts'
import { whenChanged } from './blocking.ts'
import { answer, type ConsulEndpoint, DATACENTER, json, listAnswer, NODE } from './protocol.ts'
import { metaOf, recordOf, shownChecks, shownService, statusOf, tagsOf } from './service-record.ts'

const LEADER = '127.0.0.1:8300'
const SHOWN_NODE = {
  ...{ ID: '', Node: NODE, Address: '127.0.0.1', Datacenter: DATACENTER, TaggedAddresses: {}, Meta: {}, CreateIndex: 1, ModifyIndex: 1 },
}
/** The node is this server: it answers, so it is alive. */
const NODE_CHECK = {
  ...{ Node: NODE, CheckID: 'serfHealth', Name: 'Serf Health Status', Status: 'passing', Notes: '', Output: 'Agent alive and reachable' },
  ...{ ServiceID: '', ServiceName: '', ServiceTags: [], Type: '', Definition: {}, CreateIndex: 1, ModifyIndex: 1 },
}

/** The instances of a service, or all, after a change if the request waits for one. */
async function instances(
  request: HttpFaceRequest,
  caller: FaceCaller,
  service?: string,
): Promise<{ readonly found: readonly Instance[]; readonly revision: number }> {
  if (service !== undefined && (service.includes('/') || badName(service) !== undefined))
    throw new TextFailure(400, `Invalid service name: ${service.slice(0, 64)}`)
  const at = await whenChanged(request, caller, service === undefined ? SERVICES : `${SERVICES}/${service}`)
  const { all, revision } = await new Registrations(caller).list(service, at)
  const tags = request.query.getAll('tag')
  const isWanted = await mapInSlices(caller, all, instance => tags.every(tag => tagsOf(instance).includes(tag)))
  return { found: all.filter((_, i) => isWanted[i]), revision }
}

async function healthOfService(request: HttpFaceRequest, caller: FaceCaller, service: string): Promise<HttpFaceResponse> {
  const { found, revision } = await instances(request, caller, service)
  const { query } = request
  const onlyPassing = query.has('passing') && query.get('passing') !== 'false' && query.get('passing') !== '0'
  const isShown = await mapInSlices(caller, found, instance => !onlyPassing || statusOf(instance) === 'passing')
  const shown = (instance: Instance) => ({
    Node: { ...SHOWN_NODE, Address: recordOf(instance).address || SHOWN_NODE.Address },
    Service: shownService(instance),
    Checks: [NODE_CHECK, ...shownChecks(instance)],
  })
  return listAnswer(
    caller,
    found.filter((_, i) => isShown[i]),
    shown,
    revision,
  )
}

async function catalogOfService(request: HttpFaceRequest, caller: FaceCaller, service: string): Promise<HttpFaceResponse> {
  const { found, revision } = await instances(request, caller, service)
  const shown = (instance: Instance) => {
    const { address, port } = recordOf(instance)
    return {
      ...SHOWN_NODE,
      Address: address || SHOWN_NODE.Address,
      NodeMeta: {},
      ...{ ServiceID: instance.instance, ServiceName: instance.service, ServiceTags: tagsOf(instance), ServiceMeta: metaOf(instance) },
      ...{ ServiceAddress: address, ServicePort: port, ServiceEnableTagOverride: false },
      ...{ ServiceWeights: { Passing: instance.weight, Warning: 1 }, CreateIndex: instance.lease, ModifyIndex: instance.revision },
    }
  }
  return listAnswer(caller, found, shown, revision)
}

async function catalogOfServices(request: HttpFaceRequest, caller: FaceCaller): Promise<HttpFaceResponse> {
  const { found, revision } = await instances(request, caller)
  const services = new Map<string, Set<string>>([['consul', new Set()]])
  await mapInSlices(caller, found, instance => {
    const tags = services.get(instance.service) ?? new Set()
    for (const tag of tagsOf(instance)) tags.add(tag)
    services.set(instance.service, tags)
  })
  return answer(revision, Object.fromEntries([...services].map(([service, tags]) => [service, [...tags]])))
}

async function healthByState(request: HttpFaceRequest, caller: FaceCaller, state: string): Promise<HttpFaceResponse> {
  if (!['any', 'passing', 'warning', 'critical'].includes(state)) throw new TextFailure(400, `Invalid state: ${state.slice(0, 32)}`)
  const { found, revision } = await instances(request, caller)
  const checks = [NODE_CHECK, ...(await checksOf(caller, found))]
  const asked = checks.filter(check => state === 'any' || (check as typeof NODE_CHECK).Status === state)
  return listAnswer(caller, asked, check => check, revision)
}

async function checksOf(caller: FaceCaller, found: readonly Instance[]): Promise<readonly object[]> {
  return (await mapInSlices(caller, found, shownChecks)).flat()
}

function onlyNode(node: string): void {
  if (node !== NODE) throw new TextFailure(404, `Unknown node: the only node here is ${NODE}`)
}

export const CATALOG_ENDPOINTS: readonly ConsulEndpoint[] = [
  { method: 'GET', path: '/v1/health/service/', answer: healthOfService },
  {
    method: 'GET',
    path: '/v1/health/checks/',
    answer: async (request, caller, service) => {
      const { found, revision } = await instances(request, caller, service)
      return listAnswer(caller, await checksOf(caller, found), check => check, revision)
    },
  },
  { method: 'GET', path: '/v1/health/state/', answer: healthByState },
  {
    method: 'GET',
    path: '/v1/health/node/',
    answer: async (request, caller, node) => {
      const { found, revision } = await instances(request, caller)
      const checks = node === NODE ? [NODE_CHECK, ...(await checksOf(caller, found))] : []
      return listAnswer(caller, checks, check => check, revision)
    },
  },
  { method: 'GET', path: '/v1/catalog/services', answer: catalogOfServices },
  { method: 'GET', path: '/v1/catalog/service/', answer: catalogOfService },
  {
    method: 'GET',
    path: '/v1/catalog/nodes',
    answer: async (request, caller) => {
      const { revision } = await instances(request, caller)
      return answer(revision, [SHOWN_NODE])
    },
  },
  {
    method: 'GET',
    path: '/v1/catalog/node/',
    answer: async (request, caller, node) => {
      onlyNode(node)
      const { found, revision } = await instances(request, caller)
      const services = await mapInSlices(caller, found, instance => [instance.instance, shownService(instance)] as const)
      const texts = await mapInSlices(caller, [...new Map(services)], ([id, service]) => `${JSON.stringify(id)}:${JSON.stringify(service)}`)
      return { ...answer(revision, ''), body: joined(texts, `{"Node":${JSON.stringify(SHOWN_NODE)},"Services":{`, '}}') }
    },
  },
  { method: 'GET', path: '/v1/catalog/datacenters', answer: () => json([DATACENTER]) },
  { method: 'GET', path: '/v1/status/leader', answer: () => json(LEADER) },
  { method: 'GET', path: '/v1/status/peers', answer: () => json([LEADER]) },
]
