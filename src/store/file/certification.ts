/** `certify` and the tests damage a log in a file in these ways. The logs are in a folder beside the given path. */
import { cp, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { START } from '../../store.ts'
import { type EngineUnderTest, NotTried, numbered } from '../certification.ts'
import type { CertifyOptions } from '../store-module.ts'
import { FileStore } from './file.ts'
import { decodeFrame, SEGMENT_HEADER } from './frame.ts'
import { HeadFile } from './head-file.ts'
import { DiskFolder } from './log-folder.ts'
import { isSegment } from './segment-files.ts'
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

/** Deletes the last records, as a file system restored to an earlier state would: the log is consistent, only shorter. */
async function loseTail(path: string, count: number): Promise<void> {
  const folder = new DiskFolder(`${path}-log`)
  const segments = (await folder.list()).filter(isSegment).sort()
  const head = HeadFile.read(`${path}-head`) ?? START
  let last = START
  for (const name of segments) {
    const file = (await folder.open(name))!
    const bytes = Buffer.alloc(await file.size())
    await file.read(bytes, 0)
    let at = SEGMENT_HEADER
    let frame = decodeFrame(bytes, at)
    for (; typeof frame === 'object' && frame.position.index <= head.index - count; frame = decodeFrame(bytes, at)) {
      last = frame.position
      at += frame.length
    }
    if (typeof frame === 'object') await file.write(Buffer.alloc(bytes.length - at), at)
    await file.close()
    if (typeof frame === 'object' && at === SEGMENT_HEADER && name !== segments[0]) await folder.remove(name)
  }
  const published = new HeadFile(`${path}-head`)
  await new Promise<void>(resolve => published.publish(last, resolve))
  published.close()
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
