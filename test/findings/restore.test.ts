/** Known findings: a log is restored from a backup, or put back from an older copy, while a client still relies on what was lost. */
import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect } from 'vitest'
import { propose } from '../../src/lessor/propose.ts'
import { readBackup } from '../../src/replica/backup.ts'
import { Replica } from '../../src/replica/replica.ts'
import { restore } from '../../src/replica/restore.ts'
import { FileStore } from '../../src/store/file/file.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { knownFinding } from '../support/known-finding.ts'
import { acquire, granted } from '../support/replica/rig.ts'

const MINUTE = 60_000

knownFinding(
  'restore-two-holders',
  'a restored log does not grant a name while a client relies on a longer term than the backup knows',
  async claim => {
    const { clock, log, lessor, leases } = silentLessor({ holder: 'a' })
    await using _ = leases
    const before = await Replica.open(new MemoryStore({ log, clock }), { clock })
    granted(await propose(before, acquire('early', 'other', { ttl: 5_000 })))
    const backup = await readBackup(before.backup())
    const lease = await leases.acquire('jobs', { ttl: 10 * MINUTE })
    await lease.renew()
    // The server is lost, with its log.
    lessor.stopAnswering()
    await before[Symbol.asyncDispose]()
    const empty = new MemoryLog({ clock })
    const restored = await restore(new MemoryStore({ log: empty, clock, own: { name: 'restore' } }), backup, { clock }).then(
      () => true,
      () => false, // it asks for how long clients may rely on what is lost
    )
    let isGranted = false
    if (restored) {
      await using after = await Replica.open(new MemoryStore({ log: empty, clock }), { clock })
      await clock.advance(MINUTE)
      isGranted = (await propose(after, acquire('b', 'jobs'))).kind === 'granted'
    }
    expect(lease.held).toBe(true)
    lessor.answer()
    await claim(() => expect(isGranted).toBe(false))
  },
)

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
