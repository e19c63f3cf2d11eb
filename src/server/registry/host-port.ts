/** Splits the address of an instance into host and port, for DNS, Prometheus and Envoy. */
export interface HostPort {
  readonly host: string
  readonly port: number
}

const PORTS: Readonly<Record<string, number>> = { http: 80, https: 443, ws: 80, wss: 443, grpc: 80, grpcs: 443 }

/** Undefined if neither the address nor its scheme gives a port. An IPv6 host has no brackets. */
export function hostPortOf(address: string): HostPort | undefined {
  const [, scheme = '', host, digits] = /^(?:([a-z][a-z0-9+.-]*):\/\/)?(\[[0-9a-f:.]+\]|[^:/?#[\]]+)(?::(\d{1,5}))?/i.exec(address) ?? []
  if (host === undefined) return undefined
  const port = digits === undefined ? PORTS[scheme.toLowerCase()] : Number(digits)
  return port === undefined ? undefined : { host: host.replace(/^\[|\]$/g, ''), port }
}
