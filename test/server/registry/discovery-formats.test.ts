import { expect, test } from 'vitest'
import { registrationOf } from '../../../src/registry/entry.ts'
import type { Instance } from '../../../src/registry/match.ts'
import { clusterLoadAssignment } from '../../../src/server/registry/discovery-formats.ts'

function instance(address: string): Instance {
  const registration = registrationOf({ service: 'web', instance: address.replaceAll('/', '-'), address })
  return { ...registration, address, status: 'passing', reason: '', load: 0, lease: 1, holder: 'h', revision: 1 }
}

test('an instance with a host name is left out of the Envoy cluster, which Envoy would reject otherwise', () => {
  const made = clusterLoadAssignment('web', ['http://10.0.0.7:80', 'http://db.example:80', 'http://[::1]:80'].map(instance)) as {
    endpoints: { lb_endpoints: { endpoint: { address: { socket_address: { address: string } } } }[] }[]
  }
  const addresses = made.endpoints.flatMap(({ lb_endpoints }) => lb_endpoints.map(each => each.endpoint.address.socket_address.address))
  expect(addresses).toEqual(['10.0.0.7', '::1'])
})
