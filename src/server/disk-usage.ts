/** The bytes that the file of a log takes with the files beside it, and those that are free on its disk, for metrics. */
import { readdir, stat, statfs } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'

export interface DiskUsage {
  /** Of PATH, PATH-log and the other files whose names begin with that of PATH. */
  readonly used: number
  /** For this user: what is reserved for root does not count. */
  readonly free: number
}

export async function diskUsage(path: string): Promise<DiskUsage> {
  const folder = dirname(path)
  const [{ bavail, bsize }, names] = await Promise.all([statfs(folder), readdir(folder)])
  const sizes = await Promise.all(names.filter(name => name.startsWith(basename(path))).map(name => sizeOf(join(folder, name))))
  return { used: sizes.reduce((sum, size) => sum + size, 0), free: bavail * bsize }
}

/** Files come and go while they are counted: one that is gone takes nothing. */
async function sizeOf(path: string): Promise<number> {
  try {
    const found = await stat(path)
    if (!found.isDirectory()) return found.size
    const sizes = await Promise.all((await readdir(path)).map(name => sizeOf(join(path, name))))
    return sizes.reduce((sum, size) => sum + size, 0)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return 0
    throw error
  }
}
