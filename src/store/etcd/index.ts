/** `leasehold/store/etcd`: a log in an etcd cluster. */
export { EtcdStore, type EtcdStoreOptions } from './etcd.ts'
