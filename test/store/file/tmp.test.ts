import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'vitest'
import { faultsOf } from '../../../src/store/file/certification.ts'
import { type StoreFixture, storeSuite } from '../../../src/testing/store-suite.ts'
async function fixture(): Promise<StoreFixture> {
  const name = await mkdtemp(join(tmpdir(), 'leasehold-file-'))
  return { [Symbol.asyncDispose]: () => rm(name, { recursive: true }), ...faultsOf(join(name, 'log.db')) } as never
}
  for (const { name, run } of storeSuite(fixture)) test(name, run)
