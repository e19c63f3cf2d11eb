/** A server with keys and a pool `gpus` of one device, for tests of what a key may do with it. */
import type { Place } from './cli.ts'
import { FakeNvidia } from './fake-nvidia.ts'

export interface ServedPool {
  /** Options of a command that uses this key. */
  as(key: string): { readonly env: Record<string, string> }
}

/** The store that is served. Keys are created there before the server starts. */
export function storeToServe(here: Place): { readonly url: string; createKey(...options: string[]): Promise<string> } {
  const url = `file:${here.file('served.db')}`
  return { url, createKey: async (...options) => (await here.run(['key', 'create', ...options, '--store', url])).stdout.trim() }
}

/** Serves the store and offers the device, with the key of an administrator. */
export async function servePool(here: Place, store: string, admin: string): Promise<ServedPool & Disposable> {
  const gpus = new FakeNvidia({ uuid: '1' })
  const server = here.start(['serve', '--listen', '127.0.0.1:0', '--store', store])
  const [, address] = await server.printed(/(127\.0\.0\.1:\d+)/)
  const as = (key: string) => ({ env: { LEASEHOLD_URL: `leasehold://${address}`, LEASEHOLD_API_KEY: key } })
  const offering = here.start(['pool', 'offer', 'gpus', '--discover', 'nvidia', '--interval', '200ms'], {
    env: { ...gpus.env, ...as(admin).env },
  })
  await offering.printed(/offering 1 device/)
  return { as, [Symbol.dispose]: () => gpus[Symbol.dispose]() }
}
