import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { FileStore } from '../../../src/store/file/file.ts'
import { startThreadAhead } from '../../../src/store/file/worker-thread.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'

test('the next store uses the thread that was started ahead, and the store after it starts its own', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-'))
  let started = 0
  const count = () => started++
  process.on('worker', count)
  try {
    startThreadAhead()
    startThreadAhead()
    await using first = new FileStore({ path: join(folder, 'first.db') })
    expect((await first.open()).head.index).toBe(0)
    expect(started).toBe(1)
    await using second = new FileStore({ path: join(folder, 'second.db') })
    expect((await second.open()).head.index).toBe(0)
    expect(started).toBe(2)
  } finally {
    process.off('worker', count)
    rmSync(folder, { recursive: true, force: true })
  }
})

test('a thread that was started ahead and is not needed does not keep its process alive', () => {
  const module = new URL('../../../dist/store/file/worker-thread.js', import.meta.url).href
  const program = `import { startThreadAhead } from ${JSON.stringify(module)}; startThreadAhead(); console.log('done')`
  expect(execFileSync(process.execPath, ['--input-type=module', '-e', program], { timeout: EVENT_TIMEOUT }).toString()).toBe('done\n')
})

test('a thread that is ended while it appends does not abort its process', () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-'))
  const at = (file: string) => JSON.stringify(new URL(`../../../dist/${file}`, import.meta.url).href)
  const program = `
    import { FileStore } from ${at('store/file/file.js')}
    import { endThread } from ${at('store/file/worker-thread.js')}
    import { START } from ${at('store.js')}
    const threads = []
    process.on('worker', thread => threads.push(thread))
    for (let i = 0; i < 10; i++) {
      const store = new FileStore({ path: process.argv[1] + '/' + i })
      await store.open()
      const appends = Array.from({ length: 50 }, () => store.append(new Uint8Array(1 << 18), START))
      await Promise.race(appends)
      await endThread(threads[i])
      await Promise.allSettled(appends)
    }
    console.log('done')`
  try {
    const args = ['--input-type=module', '-e', program, folder]
    expect(execFileSync(process.execPath, args, { timeout: EVENT_TIMEOUT }).toString()).toBe('done\n')
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
