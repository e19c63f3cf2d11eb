/** The file in which `pool offer` keeps its records of usage across restarts, in the state folder of the user. */
import { mkdir, open, readFile, rename } from 'node:fs/promises'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import type { UsageStorage } from '../../../devices/usage-recorder.ts'

export function defaultUsageFile(pool: string, env: NodeJS.ProcessEnv = process.env): string {
  const state = env.STATE_DIRECTORY || join(env.XDG_STATE_HOME || join(homedir(), '.local', 'state'), 'leasehold')
  return join(state, `usage-${pool.replaceAll('/', '-')}.json`)
}

export function usageFile(path: string): UsageStorage {
  return {
    load: () =>
      readFile(path, 'utf8').catch(error => {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
        throw error
      }),
    save: async text => {
      await mkdir(dirname(path), { recursive: true, mode: 0o700 })
      const part = `${path}.part`
      const file = await open(part, 'w', 0o600)
      try {
        await file.writeFile(text)
        await file.sync()
      } finally {
        await file.close()
      }
      // A crash leaves the old file or the new one, never half of it.
      await rename(part, path)
    },
  }
}
