/** Announcements in etcd: keys `NAME:announced/…` with a lease of etcd, which ends them. */
import { readFile } from 'node:fs/promises'
import type { Clock } from '../../clock.ts'
import { type Announcements, checkName } from '../announcements.ts'
import { Gateway } from './gateway.ts'
import { base64, EtcdKeys } from './keys.ts'
import type { KeyValue, RangeAnswer } from './message.ts'
import { etcdOptions } from './url.ts'

const TIMEOUT = 5_000

export class EtcdAnnouncements implements Announcements {
  readonly #gateway: Gateway
  readonly #prefix: string

  static async open(url: string, clock: Clock): Promise<EtcdAnnouncements> {
    const { endpoints, tls, user, name = 'leasehold' } = etcdOptions(url)
    const files = tls && Object.entries(tls).map(async ([what, path]) => [what, await readFile(path)] as const)
    const gateway = new Gateway({ endpoints, clock, timeout: TIMEOUT, user, tls: files && Object.fromEntries(await Promise.all(files)) })
    return new EtcdAnnouncements(gateway, new EtcdKeys(name).prefix)
  }

  private constructor(gateway: Gateway, prefix: string) {
    this.#gateway = gateway
    this.#prefix = `${prefix}announced/`
  }

  /** Two copies of the request do no harm: the lease of the first ends unused. */
  async put(name: string, text: string, ttl: number): Promise<void> {
    const { ID: lease } = await this.#gateway.call<{ readonly ID: string }>('/lease/grant', { TTL: Math.ceil(ttl / 1_000) })
    await this.#gateway.call('/kv/put', { key: this.#key(name), value: base64(Buffer.from(text)), lease })
  }

  async list(prefix: string): Promise<ReadonlyMap<string, string>> {
    const from = this.#prefix + prefix
    const to = from.slice(0, -1) + String.fromCharCode(from.charCodeAt(from.length - 1) + 1)
    const { kvs = [] } = await this.#gateway.call<RangeAnswer>('/kv/range', { key: base64(from), range_end: base64(to) })
    return new Map(kvs.map(({ key, value }) => [decoded(key).slice(this.#prefix.length), decoded(value)]))
  }

  async take(name: string): Promise<string | undefined> {
    const request = { key: this.#key(name), prev_kv: true }
    const { prev_kvs: [taken] = [] } = await this.#gateway.call<{ readonly prev_kvs?: readonly KeyValue[] }>('/kv/deleterange', request)
    return taken && decoded(taken.value)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#gateway.close()
  }

  #key(name: string): string {
    return base64(this.#prefix + checkName(name))
  }
}

function decoded(value = ''): string {
  return Buffer.from(value, 'base64').toString()
}
