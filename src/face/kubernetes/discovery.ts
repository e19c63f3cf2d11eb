/** The documents by which clients find out what this server has: versions, groups and resources. kubectl and controller-runtime ask for them first. */
import { API_VERSION } from './lease-object.ts'
import { GROUP } from './status.ts'
import { secondTime } from './time-text.ts'

/** The Kubernetes version whose behaviour this face follows. */
const MINOR = '37'

export const VERSION = {
  major: '1',
  minor: MINOR,
  gitVersion: `v1.${MINOR}.0+leasehold`,
  gitCommit: '',
  gitTreeState: 'clean',
  buildDate: secondTime(0),
  goVersion: 'none',
  compiler: 'none',
  platform: 'any/any',
} as const

const GROUP_VERSION = { groupVersion: API_VERSION, version: 'v1' }
const LEASE_GROUP = { name: GROUP, versions: [GROUP_VERSION], preferredVersion: GROUP_VERSION }

/** The documents by their paths. */
export const DOCUMENTS: Readonly<Record<string, object>> = {
  '/version': VERSION,
  '/api': { kind: 'APIVersions', versions: ['v1'], serverAddressByClientCIDRs: [] },
  '/apis': { kind: 'APIGroupList', apiVersion: 'v1', groups: [LEASE_GROUP] },
  [`/apis/${GROUP}`]: { kind: 'APIGroup', apiVersion: 'v1', ...LEASE_GROUP },
  '/api/v1': {
    kind: 'APIResourceList',
    groupVersion: 'v1',
    resources: [
      { name: 'namespaces', singularName: 'namespace', namespaced: false, kind: 'Namespace', verbs: ['get', 'list'], shortNames: ['ns'] },
    ],
  },
  [`/apis/${API_VERSION}`]: {
    kind: 'APIResourceList',
    apiVersion: 'v1',
    groupVersion: API_VERSION,
    resources: [
      {
        name: 'leases',
        singularName: 'lease',
        namespaced: true,
        kind: 'Lease',
        verbs: ['create', 'delete', 'deletecollection', 'get', 'list', 'patch', 'update', 'watch'],
      },
    ],
  },
}

/** A namespace. There is one for each that an object is in: they need not be created. */
export function namespaceObject(name: string): object {
  return {
    kind: 'Namespace',
    apiVersion: 'v1',
    metadata: { name, labels: { 'kubernetes.io/metadata.name': name } },
    spec: { finalizers: ['kubernetes'] },
    status: { phase: 'Active' },
  }
}
