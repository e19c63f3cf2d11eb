/** A store that is handed to `connect`: two replicas on one log exclude each other and pass a lease on. */
import { expect } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import type { Store } from '../../src/store.ts'

export async function passLeaseBetween(store: () => Store): Promise<void> {
  await using a = await connect(store(), { holder: 'a' })
  await using b = await connect(store(), { holder: 'b' })
  await using lease = await a.acquire('k')
  expect(await b.tryAcquire('k')).toBeUndefined()
  const waiting = b.acquire('k', { wait: '30s' })
  await lease.release()
  await using next = await waiting
  expect(next.token).toBeGreaterThan(lease.token)
}
