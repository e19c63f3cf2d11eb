/** Accidents that befall a log in etcd, done by its own means. */
import type { Engine } from './engine.ts'

export async function asked<T>(port: number, path: string, body: object): Promise<T> {
  const response = await fetch(`http://127.0.0.1:${port}/v3${path}`, {
    method: 'POST',
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(10_000),
  })
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`)
  return (await response.json()) as T
}

export function log(etcd: Engine, name: string) {
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  const below = (prefix: string) => ({ key: base64(prefix), range_end: base64(`${prefix}~`) })
  const keys = async (prefix: string): Promise<string[]> => {
    const request = { ...below(prefix), keys_only: true }
    const { kvs = [] } = await asked<{ kvs?: { key: string }[] }>(etcd.port, '/kv/range', request)
    return kvs.map(({ key }) => Buffer.from(key, 'base64').toString())
  }
  return {
    keys: () => keys(`${name}:`),
    /** As a cluster does that was restored from a backup made that many entries ago. The start is no entry. */
    async loseTail(count: number): Promise<void> {
      const entries = (await keys(`${name}:log/`)).filter(key => !key.includes('/0000000000000000.'))
      for (const key of entries.slice(-count)) await asked(etcd.port, '/kv/deleterange', { key: base64(key) })
    },
    async deleteAll(): Promise<void> {
      await asked(etcd.port, '/kv/deleterange', below(`${name}:`))
    },
    async compact(): Promise<void> {
      const { header } = await asked<{ header: { revision: string } }>(etcd.port, '/kv/range', { key: base64('x') })
      await asked(etcd.port, '/kv/compaction', { revision: header.revision, physical: true })
    },
  }
}
