/** An owner keeps how far its log has come outside the folder of the log. */
import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { propose } from '../../../src/lessor/propose.ts'
import { Replica } from '../../../src/replica/replica.ts'
import { FileStore } from '../../../src/store/file/file.ts'
import { acquire, granted } from '../../support/replica/rig.ts'

test('a server on a folder that was put back from a copy grants nothing before the longest lost term is over', async () => {
  const place = mkdtempSync(join(tmpdir(), 'leasehold-rollback-'))
  try {
    const [data, copy] = [join(place, 'data'), join(place, 'copy')]
    const open = () => Replica.open(new FileStore({ path: join(data, 'leases.db'), own: { name: 'server' } }), { owned: true })
    const close = (replica: Replica) => replica[Symbol.asyncDispose]()
    const first = await open()
    granted(await propose(first, acquire('early', 'other', { ttl: 12_000 })))
    await close(first)
    cpSync(data, copy, { recursive: true })
    const second = await open()
    const { lease } = granted(await propose(second, acquire('a', 'jobs', { ttl: 12_000 })))
    await propose(second, { kind: 'renew', leases: [lease] })
    await close(second)
    rmSync(data, { recursive: true })
    cpSync(copy, data, { recursive: true })
    const third = await open()
    expect(await propose(third, acquire('b', 'jobs', { ttl: 12_000 }))).toMatchObject({ kind: 'refused', reason: 'quiet' })
    await close(third)
  } finally {
    rmSync(place, { recursive: true, force: true })
  }
})

test('a log that went on, was removed, or lies elsewhere is not taken for one that was put back', async () => {
  const place = mkdtempSync(join(tmpdir(), 'leasehold-rollback-'))
  try {
    const open = (folder: string) =>
      Replica.open(new FileStore({ path: join(place, folder, 'leases.db'), own: { name: 'server' } }), { owned: true })
    const grants = async (folder: string) => {
      const replica = await open(folder)
      granted(await propose(replica, acquire('a', 'jobs', { ttl: 12_000 })))
      await propose(replica, { kind: 'release', lease: granted(await propose(replica, acquire('a', 'other', { ttl: 12_000 }))).lease })
      await replica[Symbol.asyncDispose]()
    }
    await grants('data')
    cpSync(join(place, 'data'), join(place, 'copy'), { recursive: true })
    const again = await open('data')
    granted(await propose(again, acquire('b', 'more')))
    await again[Symbol.asyncDispose]()
    const elsewhere = await open('copy')
    granted(await propose(elsewhere, acquire('b', 'more')))
    await elsewhere[Symbol.asyncDispose]()
    rmSync(join(place, 'data'), { recursive: true })
    await grants('data')
  } finally {
    rmSync(place, { recursive: true, force: true })
  }
})
