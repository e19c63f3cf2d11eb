import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'vitest'
import { FileStore } from '../src/store/file.ts'
import { loadEngine } from '../src/store/file-engine.ts'
import { decodeState, encodeState } from '../src/store/file-log.ts'
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
  const state = decodeState((db.prepare('select bytes from state').get() as { bytes: Uint8Array }).bytes)!
  const index = Math.max(0, state.head.index - count)
  const select = db.prepare('select nonce from entry where idx = ?')
  select.setReadBigInts(true)
  const last = select.get(index) as { nonce: bigint } | undefined
  const head = { index, nonce: BigInt.asUintN(64, last?.nonce ?? 0n) }
  db.exec('begin immediate')
  db.prepare('delete from entry where idx > ?').run(index)
  db.prepare('update state set bytes = ?').run(encodeState({ ...state, head }))
  db.exec('commit')
  db.close()
}

describe('a store in a file', () => {
  for (const { name, run } of storeSuite(fixture)) test(name, run)
})
