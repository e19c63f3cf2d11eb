/** `etcd://…`: a log in an etcd cluster. */
import type { StoreModule } from '../store-module.ts'

export const etcd: StoreModule = {
  name: 'etcd',
  schemes: ['etcd', 'etcds'],
  url: 'etcd://HOST',
  purpose: 'services that have an etcd already, or need a store that survives the loss of a machine',
  server: { program: 'etcd', packages: ['etcd-server'] },
  async fromUrl(url, { clock }) {
    const [{ EtcdStore }, { etcdOptions }] = await Promise.all([import('./etcd.ts'), import('./url.ts')])
    return new EtcdStore({ ...etcdOptions(url), clock })
  },
  async announcements(url, clock) {
    return (await import('./announcements.ts')).EtcdAnnouncements.open(url, clock)
  },
  async certify(url, options) {
    return (await import('./certification.ts')).etcdUnderTest(url, options)
  },
}
