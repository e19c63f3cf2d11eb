/** The faces by name. Each is loaded only when it is switched on. */
import { LeaseError } from '../errors.ts'
import { FACE_NAMES, type Face, type FaceName } from './face.ts'

const LOADERS: Readonly<Record<FaceName, () => Promise<Face>>> = {
  redis: async () => (await import('./redis/commands.ts')).redisFace(),
  kubernetes: async () => (await import('./kubernetes/kubernetes-face.ts')).kubernetesFace(),
  consul: async () => (await import('./consul/face.ts')).consulFace(),
  eureka: async () => (await import('./eureka/face.ts')).eurekaFace(),
  etcd: async () => (await import('./etcd/gateway.ts')).etcdFace(),
}

/** Loads faces by their names; one text may name several, separated by commas. Throws `INVALID` for a name that is not one. */
export function loadFaces(named: readonly string[]): Promise<readonly Face[]> {
  const names = new Set(named.flatMap(text => text.split(',')).filter(name => name !== ''))
  for (const name of names)
    if (!(FACE_NAMES as readonly string[]).includes(name))
      throw new LeaseError('INVALID', `there is no face ${name.slice(0, 32)}: there are ${FACE_NAMES.join(', ')}`)
  return Promise.all([...names].map(name => LOADERS[name as FaceName]()))
}
