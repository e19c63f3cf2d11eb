/** `leasehold/store/etcd`: a log in an etcd cluster. */
export { EtcdStore } from './etcd.ts'
export type { EtcdStoreOptions } from './options.ts'
