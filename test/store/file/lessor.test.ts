import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'vitest'
import { FileStore } from '../../../src/store/file/file.ts'
import { type LessorFixture, lessorSuite } from '../../../src/testing/lessor-suite.ts'
import { replicasOn } from '../../../src/testing/manual-time-store.ts'

async function fixture({ owned }: { readonly owned: boolean }): Promise<LessorFixture> {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-lessor-'))
  const store = () => new FileStore({ path: join(folder, 'log.db'), ...(owned && { own: { name: 'test' } }) })
  return { ...replicasOn(store, { owned }), [Symbol.asyncDispose]: () => rm(folder, { recursive: true }) }
}

describe('replicas on one file', () => {
  for (const { name, run } of lessorSuite(() => fixture({ owned: false }))) test(name, run)
})

describe('the owner of a file', () => {
  for (const { name, run } of lessorSuite(() => fixture({ owned: true }))) test(name, run)
})
