/** The published suites on the example store. `node --test` in a folder where `leasehold` is installed. */
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { connect } from 'leasehold'
import { lessorSuite, replicasOn, storeSuite } from 'leasehold/testing'
import { DirectoryStore } from './directory-store.mjs'

async function temporaryDirectory() {
  const path = await mkdtemp(join(tmpdir(), 'directory-store-'))
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true, maxRetries: 5 }) }
}

async function storeFixture() {
  const { path, ...disposable } = await temporaryDirectory()
  return {
    ...disposable,
    store: () => new DirectoryStore(path),
    async loseTail(count) {
      const records = (await readdir(join(path, 'records'))).sort()
      for (const name of records.slice(-count)) await rm(join(path, 'records', name))
    },
  }
}

async function lessorFixture() {
  const { path, ...disposable } = await temporaryDirectory()
  const open = async (store, clock) => (await connect(store, { clock })).lessor
  return { ...replicasOn(() => new DirectoryStore(path), { open }), ...disposable }
}

describe('a store in a directory', () => {
  for (const { name, run } of storeSuite(storeFixture)) test(name, run)
})

describe('replicas on a log in a directory', () => {
  for (const { name, run } of lessorSuite(lessorFixture)) test(name, run)
})
