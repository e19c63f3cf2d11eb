/** Leases as tables, which kubectl prints, and as their metadata alone. */
import type { KubeLease } from './lease-object.ts'

interface TableOptions {
  readonly wall: number
  /** `None`, `Metadata` or `Object`: what a row has of its object. */
  readonly include: string
  /** Of the list. */
  readonly metadata: object
  /** A watch sends the columns once. */
  readonly columns?: boolean
}

const COLUMNS = [
  { name: 'Name', type: 'string', format: 'name', description: 'Name must be unique within a namespace.', priority: 0 },
  {
    name: 'Holder',
    type: 'string',
    format: '',
    description: 'holderIdentity contains the identity of the holder of a current lease.',
    priority: 0,
  },
  { name: 'Age', type: 'string', format: '', description: 'CreationTimestamp is the time when this object was created.', priority: 0 },
]

export function leaseTable(leases: readonly KubeLease[], options: TableOptions): object {
  const { metadata, columns = true } = options
  return {
    kind: 'Table',
    apiVersion: 'meta.k8s.io/v1',
    metadata,
    columnDefinitions: columns ? COLUMNS : null,
    rows: leases.map(lease => tableRow(lease, options)),
  }
}

export function tableRow(lease: KubeLease, { wall, include }: Pick<TableOptions, 'wall' | 'include'>): object {
  return {
    cells: [lease.metadata.name ?? '', lease.spec.holderIdentity ?? '', ageText(lease.metadata.creationTimestamp, wall)],
    ...(include !== 'None' && { object: include === 'Object' ? lease : partialLease(lease) }),
  }
}

export function partialLease({ metadata }: KubeLease): object {
  return { kind: 'PartialObjectMetadata', apiVersion: 'meta.k8s.io/v1', metadata }
}

/** About two digits, as kubectl shows an age: `45s`, `3m12s`, `5h`, `12d`. */
function ageText(created: string | undefined, wall: number): string {
  if (created === undefined) return '<unknown>'
  const seconds = Math.max(0, Math.floor((wall - Date.parse(created)) / 1_000))
  const [minutes, hours, days] = [60, 3_600, 86_400].map(unit => Math.floor(seconds / unit)) as [number, number, number]
  const years = Math.floor(days / 365)
  const both = (count: number, unit: string, rest: number, finer: string) => `${count}${unit}${rest > 0 ? `${rest}${finer}` : ''}`
  if (seconds < 120) return `${seconds}s`
  if (minutes < 10) return both(minutes, 'm', seconds % 60, 's')
  if (minutes < 180) return `${minutes}m`
  if (hours < 8) return both(hours, 'h', minutes % 60, 'm')
  if (hours < 48) return `${hours}h`
  if (hours < 192) return both(days, 'd', hours % 24, 'h')
  if (years < 2) return `${days}d`
  return years < 8 ? both(years, 'y', days % 365, 'd') : `${years}y`
}
