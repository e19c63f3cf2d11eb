// The state that operations are asked for against: leases, waiters on one name, entries of each face, instances of services, and a pool with waiters and reservations.

/** The state that `npm run soak -- neighbours` and the test of slices use. */
export const FULL = {
  leases: 100_000,
  waiters: 10_000,
  entries: 15_000,
  instances: 5_000,
  members: 1_000,
  reservations: 20,
  poolWaiters: 100,
  children: 5_000,
  revoked: 100,
}

const DAY = 86_400_000
const STEP = 500

/**
 * Makes the state with commands. `propose` decides one command of the key `key`.
 * @param {(command: object, key?: number) => Promise<any>} propose
 * @param {typeof FULL} sizes @param {number} key the key with rights @param {number} other a key that may be changed
 */
export async function fillState(propose, sizes, key, other) {
  const all = async (count, make, as = 0) => {
    const outcomes = []
    for (let from = 0; from < count; from += STEP) {
      const some = Array.from({ length: Math.min(STEP, count - from) }, (_, i) => propose(make(from + i), as))
      outcomes.push(...(await Promise.all(some)))
    }
    const refused = outcomes.find(({ kind }) => kind === 'refused')
    if (refused !== undefined) throw new Error(`the state cannot be made: ${JSON.stringify(refused)}`)
    return outcomes
  }
  const lease = (holder, resource, more = {}) => ({
    kind: 'acquire',
    holder,
    ttl: DAY,
    wants: resource === undefined ? [] : [{ resource }],
    ...more,
  })
  for (const [prefix, rules] of Object.entries({
    '': { waiters: 10_000, ttlMax: DAY },
    gpus: { queue: 'fit' },
    kv: { freeEntries: 100_000, freeBytes: 64 << 20 },
    ...Object.fromEntries(['etcd', 'consul', 'kubernetes'].map(face => [face, { freeEntries: 100_000, freeBytes: 64 << 20 }])),
  }))
    await propose({ kind: 'policy', prefix, rules })

  const owned = await all(sizes.leases, i => lease(`holder ${i % 50}`, `jobs/${i % 100}/${i}`), key)
  const [held] = await all(1, () => lease('holder', 'queue'))
  await all(sizes.waiters, i => lease(`waiter ${i}`, 'queue', { wait: true }))
  await all(1, () => lease('writer', 'shared'))
  for (let i = 0; i < sizes.revoked; i++) {
    const name = `revoked/${i % 2 === 0 ? '' : 'resp/'}${i >> 1}`
    await all(40, n => lease(`revoked ${i}`, `${name}/${n}`), key)
  }
  await all(sizes.revoked, i => lease('holder', i % 2 === 0 ? `broken/${i >> 1}` : `broken/resp/${i >> 1}`), key)

  const [parent] = await all(1, () => lease('parent', 'parent'), key)
  await all(sizes.children, i => lease('child', `children/${i}`, { parent: parent.lease }), key)

  const write = (count, make) =>
    all(Math.ceil(count / 100), i => ({ kind: 'transaction', success: Array.from({ length: 100 }, (_, n) => make(i * 100 + n)) }))
  await write(sizes.entries, i => ({ key: `etcd/k/${i}`, value: `value ${i}` }))
  await write(sizes.entries, i => ({ key: `consul/k/${i}`, value: JSON.stringify({ value: `value ${i}` }) }))
  await write(sizes.entries, i => {
    const [namespace, name] = [`team-${i % 20}`, `lease-${i}`]
    const metadata = { name, namespace, uid: `uid-${i}`, creationTimestamp: '2026-01-01T00:00:00Z' }
    return { key: `kubernetes/${namespace}/${name}`, value: `+${JSON.stringify({ metadata, spec: { leaseDurationSeconds: 15 } })}` }
  })
  const [etcdLease] = await all(1, () => lease('etcd', undefined, { entries: [{ key: 'etcd/on-lease', value: 'x' }] }), key)

  await all(
    sizes.instances,
    i => {
      const [service, instance] = [i % 5 === 0 ? `small${i % 100}` : 'big', `i${i}`]
      const registration = {
        addresses: [`http://10.0.${i >> 8}.${i & 255}:80`],
        capabilities: ['c'],
        tags: ['t'],
        metadata: { version: 1 },
      }
      const entries = [
        { key: `services/${service}/${instance}`, value: JSON.stringify(registration) },
        { key: `services/${service}/${instance}/state`, value: '{"status":"passing","load":0}' },
      ]
      return lease(`${service}/${instance}`, undefined, { entries })
    },
    key,
  )

  const offers = Array.from({ length: sizes.members }, (_, i) => ({
    key: `pool/gpus/m${i}`,
    value: JSON.stringify({ labels: { host: `h${i % 50}` } }),
  }))
  await all(Math.ceil(sizes.members / 50), i => lease('host', undefined, { entries: offers.slice(i * 50, i * 50 + 50) }))
  const taken = await all(
    Math.floor(sizes.members / 2),
    i => lease(`user ${i}`, undefined, { maxLife: 500_000 + i, pool: { pool: 'gpus' } }),
    key,
  )
  await all(sizes.reservations, i =>
    lease(`reserver ${i}`, undefined, {
      maxLife: 50_000,
      wait: true,
      pool: { pool: 'gpus', count: Math.floor(sizes.members / 20), from: 600_000 + i },
    }),
  )
  await all(sizes.poolWaiters, i =>
    lease(`pool waiter ${i}`, undefined, {
      wait: true,
      pool: { pool: 'gpus', count: Math.min(256, sizes.members - 10), match: [{ label: `l${i}`, test: 'absent' }] },
    }),
  )
  return {
    lease: taken[0].lease,
    held: held.lease,
    parent: parent.lease,
    etcdLease: etcdLease.lease,
    owned: owned.map(({ lease: id }) => id),
    key: other,
  }
}
