/** Lists in the words of those who already balance load: Prometheus and Envoy. Pure. */
import { isIP } from 'node:net'
import type { Instance } from '../../registry/match.ts'
import { tierOf } from '../../registry/match.ts'
import { targetOf } from './target.ts'

/** Prometheus' `http_sd`: one group for each instance, so that each has its own labels. */
export function httpSd(instances: readonly Instance[]): object[] {
  return instances.flatMap(({ address, service, instance, status, zone, tags, capabilities }) => {
    const target = targetOf(address)
    if (target === undefined) return []
    const { host, port } = target
    return {
      targets: [`${host.includes(':') ? `[${host}]` : host}:${port}`],
      labels: {
        __meta_leasehold_service: service,
        __meta_leasehold_instance: instance,
        __meta_leasehold_status: status,
        __meta_leasehold_zone: zone,
        // In commas, also at both ends: so that a relabelling can match a whole word.
        __meta_leasehold_tags: `,${tags.join(',')},`,
        __meta_leasehold_capabilities: `,${capabilities.join(',')},`,
        ...(/^https:/i.test(address) && { __scheme__: 'https' }),
      },
    }
  })
}

export const EDS = 'type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment'

/** Envoy's words for how one is. */
function health({ status }: Instance): string {
  if (status === 'draining' || status === 'maintenance') return 'DRAINING'
  if (tierOf(status) === undefined) return 'UNHEALTHY'
  return status === 'passing' || status === 'warning' ? 'HEALTHY' : 'DEGRADED'
}

/**
 * Envoy's endpoints of one cluster, by zone. A weight of 0, which Envoy does not know, leaves an instance out. So does a host that is a name: Envoy takes
 * addresses alone here, and would refuse the whole cluster for one name.
 */
export function clusterLoadAssignment(service: string, instances: readonly Instance[]): object {
  const zones = new Map<string, object[]>()
  for (const instance of instances) {
    const target = targetOf(instance.address)
    if (target === undefined || isIP(target.host) === 0 || instance.weight === 0) continue
    const listed = zones.get(instance.zone) ?? []
    zones.set(instance.zone, listed)
    listed.push({
      endpoint: { address: { socket_address: { address: target.host, port_value: target.port } } },
      health_status: health(instance),
      load_balancing_weight: instance.weight,
      metadata: { filter_metadata: { 'envoy.lb': { instance: instance.instance } } },
    })
  }
  return {
    '@type': EDS,
    cluster_name: service,
    endpoints: [...zones].map(([zone, lb_endpoints]) => ({ ...(zone !== '' && { locality: { zone } }), lb_endpoints })),
  }
}
