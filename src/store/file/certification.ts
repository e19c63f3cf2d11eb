/** How `certify` and the tests damage a log in a file. The logs are in a folder beside the given path. */
import { cp, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { CERTIFY_TIMEOUT, type EngineUnderTest, NotTried, numbered } from '../certification.ts'
import type { CertifyOptions } from '../store-module.ts'
import { loadEngine } from './engine.ts'
import { FileStore } from './file.ts'
import { decodeState, encodeState, unsigned } from './record.ts'
import { requiredFilePath } from './url.ts'

export async function fileUnderTest(url: string, { prefix }: CertifyOptions): Promise<EngineUnderTest> {
  const given = requiredFilePath(url)
  const folder = join(dirname(given), `${basename(given)}-${prefix}`)
  const next = numbered('log')
  return {
    log() {
      const path = join(folder, next(), 'leases.db')
      return { url: `file:${path}`, ...faultsOf(path) }
    },
    addresses: new NotTried('there is no connection to a file'),
    through: same => same,
    canRestart: false,
    async remove() {
      await rm(folder, { recursive: true, force: true, maxRetries: 3 })
      return []
    },
  }
}

/** Stores on the log at `path`, and its faults: what the store suite needs. */
export function faultsOf(path: string) {
  return {
    store: () => new FileStore({ path }),
    owner: (name: string) => new FileStore({ path, own: { name } }),
    forgetOwner: () => rm(`${path}-owner`),
    loseTail: (count: number) => loseTail(path, count),
    copy: () => copyFolder(dirname(path)),
  }
}

/** Deletes the last records, as a file system restored to an earlier state would: the file is consistent, only shorter. */
async function loseTail(path: string, count: number): Promise<void> {
  const { DatabaseSync } = await loadEngine()
  const db = new DatabaseSync(path, { timeout: CERTIFY_TIMEOUT })
  try {
    const state = decodeState((db.prepare('select bytes from state').get() as { bytes: Uint8Array }).bytes)!
    const index = Math.max(0, state.head.index - count)
    const select = db.prepare('select nonce from entry where idx = ?')
    select.setReadBigInts(true)
    const last = select.get(index) as { nonce: bigint } | undefined
    db.exec('begin immediate')
    db.prepare('delete from entry where idx > ?').run(index)
    const head = { index, nonce: unsigned(last?.nonce ?? 0n) }
    db.prepare('update state set bytes = ?').run(encodeState({ ...state, head }))
    db.exec('commit')
  } finally {
    db.close()
  }
}

/** Copies the folder, as a snapshot of the file system or a backup does. The returned function puts the copy back. */
async function copyFolder(folder: string): Promise<() => Promise<void>> {
  const aside = `${folder}-copy`
  await cp(folder, aside, { recursive: true })
  return async () => {
    await rm(folder, { recursive: true })
    await rename(aside, folder)
  }
}
