/** The rules that a shared log begins with, when processes of two builds are on it. The newer build is the same code loaded again, with RULES one higher. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { systemClock } from '../../src/clock.ts'
import { countUser, usersOf } from '../../src/connect/store-users.ts'
import * as errors from '../../src/errors.ts'
import { RULES } from '../../src/kernel/state.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { FileStore } from '../../src/store/file/file.ts'
import { eventually } from '../support/eventually.ts'
import { acquire, granted } from '../support/replica/rig.ts'

const NEXT = RULES + 1

vi.resetModules()
vi.doMock('../../src/kernel/state.ts', async original => ({ ...(await original<object>()), RULES: NEXT }))
vi.doMock('../../src/errors.ts', () => errors)
const { openReplica } = await import('../../src/connect/connect.ts')

function folder() {
  const path = mkdtempSync(join(tmpdir(), 'leasehold-rules-'))
  const file = join(path, 'leases.db')
  return { file, url: `file:${file}`, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
}

const rulesOf = async (replica: Replica) => (await replica.read({ kind: 'summary' }, { consistent: true })).value.rules

test('an older server that waits on an empty log goes on when a newer one writes first, by the rules that both know', async () => {
  using here = folder()
  await using older = await Replica.open(new FileStore({ path: here.file }))
  countUser(here.url, { clock: systemClock, signal: older.signal, rules: RULES, server: true })
  await eventually(async () => expect((await usersOf(here.url, systemClock))?.processes).toMatchObject([{ kind: 'server', rules: RULES }]))
  await using newer = await openReplica(new FileStore({ path: here.file }), here.url, { owned: false, server: true })
  granted(await propose(newer, acquire('ann', 'a')))
  expect(await rulesOf(newer)).toBe(RULES)
  expect(await rulesOf(older)).toBe(RULES)
  expect(older.signal.aborted).toBe(false)
})

test('without older processes a log begins with the newest rules', async () => {
  using here = folder()
  await using newer = await openReplica(new FileStore({ path: here.file }), here.url, { owned: false })
  granted(await propose(newer, acquire('ann', 'a')))
  expect(await rulesOf(newer)).toBe(NEXT)
})
