import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'vitest'
import { FileStore } from '../src/store/file.ts'
import { loadEngine } from '../src/store/file-engine.ts'
import { sumOfState } from '../src/store/file-log.ts'
import { type StoreFixture, storeSuite } from '../src/testing/store-suite.ts'

async function fixture(): Promise<StoreFixture> {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-file-'))
  const path = join(folder, 'log.db')
  return {
    store: () => new FileStore({ path }),
    owner: name => new FileStore({ path, own: { name } }),
    forgetOwner: () => rm(`${path}-owner`),
    loseTail: count => loseTail(path, count),
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true }),
  }
}

/** As if the file system had gone back to an earlier moment: everything fits together, only less of it. */
async function loseTail(path: string, count: number): Promise<void> {
  const { DatabaseSync } = await loadEngine()
  const db = new DatabaseSync(path, { timeout: 5_000 })
  const get = (sql: string, ...values: number[]) => {
    const statement = db.prepare(sql)
    statement.setReadBigInts(true)
    return statement.get(...values) as Record<string, bigint> | undefined
  }
  const row = get('select * from state')!
  const index = Math.max(0, Number(row.head) - count)
  const nonce = get('select nonce from entry where idx = ?', index)?.nonce ?? 0n
  const position = (index: bigint, nonce: bigint) => ({ index: Number(index), nonce: BigInt.asUintN(64, nonce) })
  const state = {
    epoch: Number(row.epoch),
    head: position(BigInt(index), nonce),
    floor: position(row.floor!, row.floor_nonce!),
    snapshot: Number(row.snapshot),
    owner: Number(row.owner),
  }
  db.exec('begin immediate')
  db.prepare('delete from entry where idx > ?').run(index)
  db.prepare('update state set head = ?, head_nonce = ?, sum = ?').run(index, nonce, sumOfState(state))
  db.exec('commit')
  db.close()
}

describe('a store in a file', () => {
  for (const { name, run } of storeSuite(fixture)) test(name, run)
})
