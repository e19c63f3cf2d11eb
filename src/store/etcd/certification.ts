/** `certify` damages a log in etcd in these ways. */
import { readFile } from 'node:fs/promises'
import { CERTIFY_TIMEOUT, ENCRYPTED, type EngineUnderTest, messageOf, numbered, orNotTried, sharedLog, withName } from '../certification.ts'
import type { CertifyOptions } from '../store-module.ts'
import { EtcdStore } from './etcd.ts'
import { Gateway } from './gateway.ts'
import { base64, EtcdKeys } from './keys.ts'
import { etcdOptions, hostAndPort } from './url.ts'

export async function etcdUnderTest(url: string, { prefix, clock }: CertifyOptions): Promise<EngineUnderTest> {
  const next = numbered(prefix)
  const { endpoints, tls, user } = etcdOptions(url)

  async function connected<T>(work: (gateway: Gateway) => Promise<T>): Promise<T> {
    const files = tls && Object.entries(tls).map(async ([what, path]) => [what, await readFile(path)] as const)
    const certificates = files && Object.fromEntries(await Promise.all(files))
    const gateway = new Gateway({ endpoints, clock, timeout: CERTIFY_TIMEOUT, user, tls: certificates })
    try {
      return await work(gateway)
    } finally {
      gateway.close()
    }
  }

  const loseTail = (name: string, count: number): Promise<void> =>
    connected(async gateway => {
      const { log } = new EtcdKeys(name)
      const { kvs = [] } = await gateway.call<{ kvs?: { key: string }[] }>('/kv/range', { ...log, keys_only: true })
      const records = kvs.filter(({ key }) => !Buffer.from(key, 'base64').toString().includes('/0000000000000000.')) // not the start
      for (const { key } of records.slice(-count)) await gateway.call('/kv/deleterange', { key })
    })

  return {
    log() {
      const name = next()
      const own = withName(url, name)
      const store = () => new EtcdStore({ ...etcdOptions(own), clock })
      return { url: own, store, ...sharedLog, loseTail: count => orNotTried(loseTail(name, count)) }
    },
    addresses: tls ? ENCRYPTED : endpoints.map(hostAndPort),
    through: (own, ports) => own.replace(/(:\/\/(?:[^@/?]*@)?)[^@/?]+/, `$1${ports.map(port => `127.0.0.1:${port}`).join(',')}`),
    canRestart: true,
    async remove() {
      try {
        // From - to the character that follows it: every log with this prefix, and nothing else.
        await connected(gateway => gateway.call('/kv/deleterange', { key: base64(`${prefix}-`), range_end: base64(`${prefix}.`) }))
        return ['the history of what was deleted, until etcd is compacted']
      } catch (error) {
        return [`keys that begin with ${prefix}- (${messageOf(error)})`]
      }
    },
  }
}
