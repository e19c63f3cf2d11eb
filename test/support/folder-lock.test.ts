import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { folderLock } from './folder-lock.ts'

function lockPath(): string {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-lock-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  return join(folder, 'kept/lock')
}

test('one holds the lock at a time, and the next one gets it when it is released', async () => {
  const lock = lockPath()
  let holding = 0
  const hold = async () => {
    await using _lock = await folderLock(lock)
    expect(++holding).toBe(1)
    await new Promise(resolve => setImmediate(resolve))
    holding--
  }
  await Promise.all([hold(), hold(), hold()])
})

test('a lock whose process has ended, or never wrote its id, is taken over', async () => {
  const lock = lockPath()
  mkdirSync(lock, { recursive: true })
  const noProcess = 2 ** 22 + 1 // above the highest id of Linux
  writeFileSync(join(lock, 'pid'), String(noProcess))
  await (await folderLock(lock))[Symbol.asyncDispose]()
  mkdirSync(lock)
  utimesSync(lock, 1, 1)
  await (await folderLock(lock))[Symbol.asyncDispose]()
})
