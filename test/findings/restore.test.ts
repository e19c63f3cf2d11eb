/** Known findings: a log is put back from an older copy, while a client still relies on what was lost. */
import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect } from 'vitest'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { FileStore } from '../../src/store/file/file.ts'
import { knownFinding } from '../support/known-finding.ts'
import { acquire, granted } from '../support/replica/rig.ts'

knownFinding('rollback-early-grant', 'a server on a folder that was put back from a copy grants nothing at once', async claim => {
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
    const { kind } = await propose(third, acquire('b', 'jobs', { ttl: 12_000 }))
    await close(third)
    await claim(() => expect(kind).toBe('refused'))
  } finally {
    rmSync(place, { recursive: true, force: true })
  }
})
