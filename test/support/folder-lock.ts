/** A lock between the processes of this machine, for work that must be done by one of them at a time, such as an installation. */
import { mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

/** Milliseconds after which a lock without a process id belongs to a process that ended before it wrote it. */
const UNNAMED = 10_000

/**
 * Waits until this process alone holds the lock; leaving the block releases it. Only one process can create the folder. The process id in it tells whether that
 * process still runs: one that was killed holds nothing.
 */
export async function folderLock(lock: string): Promise<AsyncDisposable> {
  await mkdir(dirname(lock), { recursive: true })
  const owner = join(lock, 'pid')
  for (;;) {
    try {
      await mkdir(lock)
      await writeFile(owner, String(process.pid))
      return { [Symbol.asyncDispose]: () => rm(lock, { recursive: true, force: true }) }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    }
    await sleep(250)
    if (await isAbandoned(lock, owner)) await rm(lock, { recursive: true, force: true })
  }
}

async function isAbandoned(lock: string, owner: string): Promise<boolean> {
  const pid = Number(await readFile(owner, 'utf8').catch(() => ''))
  if (pid > 0) return !isRunning(pid)
  const made = await stat(lock).catch(() => undefined)
  return made !== undefined && Date.now() - made.mtimeMs > UNNAMED
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
