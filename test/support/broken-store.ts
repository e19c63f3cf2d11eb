/** Stores of which some calls fail or go otherwise. */
import { decodeBatch } from '../../src/kernel/codec/batch.ts'
import type { Store } from '../../src/store.ts'

/** A store whose user dies before the moved leases are in force. */
export function killedAtTheEnd(store: Store): Store {
  return broken(store, {
    async append(record, after) {
      const isEnd = decodeBatch(record).proposals.some(({ command }) => command.kind === 'move' && command.into === 'end')
      return isEnd ? Promise.reject(new Error('killed')) : store.append(record, after)
    },
  })
}

/** A store of which some calls go otherwise. */
export function broken(store: Store, other: Partial<Store>): Store {
  return new Proxy(store, {
    get(target, name) {
      const value = (name in other ? other : target)[name as keyof Store] as unknown
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}
