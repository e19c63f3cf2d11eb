import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { connect } from '../../../src/index.ts'
import { SQLITE_TABLE, type SqliteDatabase, SqliteGuard } from '../../../src/recipe/fence/fence.ts'
import { loadEngine } from '../../../src/store/file/engine.ts'

const REPORTS = { tokens: { reports: 1 } }

/** The engines that this Node has. */
const engines = (
  await Promise.all(
    ['node:sqlite', '@photostructure/sqlite'].map(async name => ({ name, engine: await loadEngine([name]).catch(() => undefined) })),
  )
).flatMap(({ name, engine }) => (engine === undefined ? [] : [{ name, engine }]))

describe.each(engines)('on $name', ({ engine }) => {
  function place() {
    const path = mkdtempSync(join(tmpdir(), 'leasehold-fence-'))
    const open = () => new engine.DatabaseSync(join(path, 'reports.db'), { timeout: 0 })
    const database = open()
    database.exec('create table report (name text primary key, token integer)')
    return {
      database,
      open,
      names: () =>
        database
          .prepare('select name from report order by name')
          .all()
          .map(row => (row as { name: string }).name),
      [Symbol.dispose]() {
        database.close()
        rmSync(path, { recursive: true, force: true })
      },
    }
  }

  const put = (name: string) => (database: SqliteDatabase) => void database.prepare('insert or replace into report values (?, 1)').get(name)

  test('a late holder is refused before its work begins, and nothing of it is written', async () => {
    using here = place()
    await using leases = await connect('memory:')
    const guard = new SqliteGuard(here.database, { create: true })
    const late = await leases.acquire(['a', 'b'])
    guard.write(late, put('a'))
    await late.release()
    const next = await leases.acquire('b')
    expect(guard.write(next, () => 'written')).toBe('written')
    const ran: string[] = []
    const refused = () => guard.write(late, () => ran.push('late'))
    expect(refused).toThrow(expect.objectContaining({ code: 'STALE', facts: { resource: 'b', token: late.tokens.b } }))
    expect(() => guard.admit('b', late.tokens.b!)).toThrow(expect.objectContaining({ code: 'STALE' }))
    expect([ran, here.names()]).toEqual([[], ['a']])
    guard.write(next, put('b')) // the same token again
    guard.admit('large', 179_471_282_160_801)
    expect(() => guard.admit('large', 179_471_282_160_800)).toThrow(expect.objectContaining({ code: 'STALE' }))
  })

  test('a failed work is rolled back with its fence, and its error comes through even if it rolled back itself', () => {
    using here = place()
    const guard = new SqliteGuard(here.database, { create: true })
    const failure = new Error('the work failed')
    const fails = (more: string) => () =>
      guard.write({ tokens: { reports: 5 } }, database => {
        put('x')(database)
        if (more !== '') database.exec(more)
        throw failure
      })
    expect(fails('')).toThrow(failure)
    expect(fails('rollback')).toThrow(failure)
    guard.write(REPORTS, put('y'))
    expect(here.names()).toEqual(['y'])
  })

  test('asynchronous work is refused and rolled back', () => {
    using here = place()
    const guard = new SqliteGuard(here.database, { create: true })
    expect(() => guard.write(REPORTS, async database => put('x')(database))).toThrow('must be synchronous')
    expect(here.names()).toEqual([])
  })

  test('the fence is in a transaction that the application hands in', () => {
    using here = place()
    here.database.exec(SQLITE_TABLE)
    const guard = new SqliteGuard(here.database)
    here.database.exec('begin')
    guard.admit('reports', 7)
    put('x')(here.database)
    expect(() => guard.write(REPORTS, put('y'))).toThrow(/within a transaction/)
    here.database.exec('rollback')
    guard.write(REPORTS, put('z'))
    expect(here.names()).toEqual(['z'])
  })

  test('a second process waits for, or is refused by, the writer that has begun', () => {
    using here = place()
    const other = here.open()
    try {
      const guard = new SqliteGuard(here.database, { create: true })
      const rival = new SqliteGuard(other, { create: true })
      guard.write(REPORTS, () => expect(() => rival.write({ tokens: { reports: 2 } }, put('y'))).toThrow(/locked/))
      rival.write({ tokens: { reports: 2 } }, put('y'))
      expect(() => guard.write(REPORTS, put('x'))).toThrow(expect.objectContaining({ code: 'STALE' }))
      expect(here.names()).toEqual(['y'])
    } finally {
      other.close()
    }
  })

  test('rows of the fence are deleted by the time of their last write', () => {
    using here = place()
    const guard = new SqliteGuard(here.database, { create: true })
    guard.admit('old', 1)
    guard.admit('used', 1)
    here.database.exec("update leasehold_fence set updated = datetime('now', '-31 days')")
    guard.admit('used', 1)
    here.database.exec("delete from leasehold_fence where updated < datetime('now', '-30 days')")
    expect(here.database.prepare('select resource from leasehold_fence').all()).toMatchObject([{ resource: 'used' }])
  })
})
