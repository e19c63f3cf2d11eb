/** Lists of instances in the formats of Prometheus (`http_sd`) and Envoy (`ClusterLoadAssignment`). Pure. */
import { isIP } from 'node:net'
import type { Instance } from '../../registry/match.ts'
import { tierOf } from '../../registry/match.ts'
import { hostPortOf } from './host-port.ts'

/** Target groups for Prometheus: one for each instance, so that each has its own labels. */
export function httpSd(instances: readonly Instance[]): object[] {
  return instances.flatMap(({ address, service, instance, status, zone, tags, capabilities }) => {
    const target = hostPortOf(address)
    if (target === undefined) return []
    const { host, port } = target
    return {
      targets: [`${host.includes(':') ? `[${host}]` : host}:${port}`],
      labels: {
        __meta_leasehold_service: service,
        __meta_leasehold_instance: instance,
        __meta_leasehold_status: status,
        __meta_leasehold_zone: zone,
        // Commas around each word, so that a relabelling rule can match a whole word.
        __meta_leasehold_tags: `,${tags.join(',')},`,
        __meta_leasehold_capabilities: `,${capabilities.join(',')},`,
        ...(/^https:/i.test(address) && { __scheme__: 'https' }),
      },
    }
  })
}

export const EDS = 'type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment'

/** The status of an instance as Envoy's `HealthStatus`. */
function healthStatus({ status }: Instance): string {
  if (status === 'draining' || status === 'maintenance') return 'DRAINING'
  if (tierOf(status) === undefined) return 'UNHEALTHY'
  return status === 'passing' || status === 'warning' ? 'HEALTHY' : 'DEGRADED'
}

/**
 * The endpoints of one Envoy cluster, by zone. Instances of weight 0 are left out, since Envoy has no such weight. So are instances whose host is
 * a name: Envoy accepts only addresses here, and would reject the whole cluster.
 */
export function clusterLoadAssignment(service: string, instances: readonly Instance[]): object {
  const zones = new Map<string, object[]>()
  for (const instance of instances) {
    const target = hostPortOf(instance.address)
    if (target === undefined || isIP(target.host) === 0 || instance.weight === 0) continue
    const listed = zones.get(instance.zone) ?? []
    zones.set(instance.zone, listed)
    listed.push({
      endpoint: { address: { socket_address: { address: target.host, port_value: target.port } } },
      health_status: healthStatus(instance),
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
