/** The stores that a URL can name. A new store is its folder, its test, and one line here. */
import { etcd } from './etcd/module.ts'
import { file } from './file/module.ts'
import { memory } from './memory-module.ts'
import { postgres } from './postgres/module.ts'
import { redis } from './redis/module.ts'
import type { StoreModule } from './store-module.ts'

export const STORES: readonly StoreModule[] = [memory, file, postgres, redis, etcd]

/** The module whose schemes include `scheme`. */
export function storeModule(scheme: string | undefined): StoreModule | undefined {
  return STORES.find(({ schemes }) => schemes.includes(scheme ?? ''))
}
