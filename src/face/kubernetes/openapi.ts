/** The OpenAPI documents of Leases, as far as kubectl reads them: to validate what it sends, and for `kubectl explain`. */
import { API_VERSION } from './lease-object.ts'
import { GROUP } from './status.ts'

const GVK = { group: GROUP, version: 'v1', kind: 'Lease' }
const LEASE = 'io.k8s.api.coordination.v1.Lease'
const SPEC = 'io.k8s.api.coordination.v1.LeaseSpec'
const META = 'io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta'

const text = (description: string) => ({ type: 'string', description })
const int = (description: string) => ({ type: 'integer', format: 'int32', description })
const time = (description: string) => ({ type: 'string', format: 'date-time', description })
const map = (description: string) => ({ type: 'object', additionalProperties: { type: 'string', default: '' }, description })

function schemas(reference: (name: string) => object): Readonly<Record<string, object>> {
  return {
    [LEASE]: {
      description: 'Lease defines a lease concept.',
      type: 'object',
      properties: {
        apiVersion: text('APIVersion defines the versioned schema of this representation of an object.'),
        kind: text('Kind is a string value representing the REST resource this object represents.'),
        metadata: reference(META),
        spec: reference(SPEC),
      },
      'x-kubernetes-group-version-kind': [GVK],
    },
    [SPEC]: {
      description: 'LeaseSpec is a specification of a Lease.',
      type: 'object',
      properties: {
        holderIdentity: text('The identity of the holder. In Leasehold it holds the resource kubernetes/NAMESPACE/NAME.'),
        leaseDurationSeconds: int('How long the lease is held after each renewal.'),
        acquireTime: time('When the current holder acquired the lease, by its own clock.'),
        renewTime: time('When the current holder last renewed the lease, by its own clock.'),
        leaseTransitions: int('The number of transitions of the lease between holders.'),
        strategy: text('The strategy for picking the leader for coordinated leader election.'),
        preferredHolder: text('A holder that would be more suitable.'),
      },
    },
    [META]: {
      description: 'ObjectMeta is metadata that all persisted resources must have.',
      type: 'object',
      properties: {
        name: text('Name must be unique within a namespace.'),
        generateName: text('A prefix, used to generate a unique name if name has not been provided.'),
        namespace: text('Namespace defines the space within which each name must be unique.'),
        uid: text('UID is the unique in time and space value for this object.'),
        resourceVersion: text('The revision of Leasehold in which the object was last written.'),
        generation: { type: 'integer', format: 'int64' },
        creationTimestamp: time('When the object was created.'),
        deletionTimestamp: time('When the object will be deleted, once its finalizers are gone.'),
        deletionGracePeriodSeconds: { type: 'integer', format: 'int64' },
        labels: map('Map of string keys and values that can be used to organize and select objects.'),
        annotations: map('Unstructured keys and values.'),
        finalizers: { type: 'array', items: { type: 'string', default: '' } },
        ownerReferences: { type: 'array', items: { type: 'object' } },
        managedFields: { type: 'array', items: { type: 'object' } },
        selfLink: text('Ignored.'),
      },
    },
  }
}

const parameter = (name: string, where: string) => ({
  name,
  in: where,
  required: where === 'path',
  schema: { type: 'string', uniqueItems: true },
})
const QUERY = ['dryRun', 'fieldManager', 'fieldValidation'].map(name => parameter(name, 'query'))

const V3 = {
  openapi: '3.0.0',
  info: { title: 'Leasehold', version: 'v1' },
  paths: {
    [`/apis/${API_VERSION}/namespaces/{namespace}/leases`]: {
      parameters: [parameter('namespace', 'path')],
      post: {
        parameters: QUERY,
        responses: { '201': { description: 'Created' } },
        'x-kubernetes-action': 'post',
        'x-kubernetes-group-version-kind': GVK,
      },
    },
    [`/apis/${API_VERSION}/namespaces/{namespace}/leases/{name}`]: {
      parameters: [parameter('namespace', 'path'), parameter('name', 'path')],
      put: {
        parameters: QUERY,
        responses: { '200': { description: 'OK' } },
        'x-kubernetes-action': 'put',
        'x-kubernetes-group-version-kind': GVK,
      },
      patch: {
        parameters: QUERY,
        responses: { '200': { description: 'OK' } },
        'x-kubernetes-action': 'patch',
        'x-kubernetes-group-version-kind': GVK,
      },
    },
  },
  components: { schemas: schemas(name => ({ allOf: [{ $ref: `#/components/schemas/${name}` }], default: {} })) },
}

const V3_PATH = `/openapi/v3/apis/${API_VERSION}`

export const OPENAPI_DOCUMENTS: Readonly<Record<string, object>> = {
  '/openapi/v3': { paths: { [`apis/${API_VERSION}`]: { serverRelativeURL: V3_PATH } } },
  [V3_PATH]: V3,
  '/openapi/v2': {
    swagger: '2.0',
    info: { title: 'Leasehold', version: 'v1' },
    paths: {},
    definitions: schemas(name => ({ $ref: `#/definitions/${name}` })),
  },
}
