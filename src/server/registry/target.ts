/** What an address means to those who balance load: a host and a port. */
export interface Target {
  readonly host: string
  readonly port: number
}

const PORTS: Readonly<Record<string, number>> = { http: 80, https: 443, ws: 80, wss: 443, grpc: 80, grpcs: 443 }

/** Undefined where neither the address nor its scheme says which port is meant. An IPv6 address comes without its brackets. */
export function targetOf(address: string): Target | undefined {
  const [, scheme = '', host, digits] = /^(?:([a-z][a-z0-9+.-]*):\/\/)?(\[[0-9a-f:.]+\]|[^:/?#[\]]+)(?::(\d{1,5}))?/i.exec(address) ?? []
  if (host === undefined) return undefined
  const port = digits === undefined ? PORTS[scheme.toLowerCase()] : Number(digits)
  return port === undefined ? undefined : { host: host.replace(/^\[|\]$/g, ''), port }
}
