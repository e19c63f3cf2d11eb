import { once } from 'node:events'
import { open, rename, rm } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import type { Command } from 'commander'
import { systemClock } from '../../clock.ts'
import { redactedUrl } from '../../connect/url.ts'
import { LeaseError } from '../../errors.ts'
import { readBackup } from '../../replica/backup.ts'
import { common, invoke } from '../invocation.ts'

export function backup(program: Command): void {
  common(program.command('backup'))
    .summary('the whole state into a file, while everything goes on')
    .description('Writes everything at the end of the log into FILE (- is stdout). It holds every entry and the hashes of keys: mode 0600.')
    .argument('<file>', 'where to; replaced when complete')
    .action(async (file: string, _: unknown, self: Command) => {
      await invoke(self, async ({ lessor, out, signal, settings }) => {
        if (lessor.backup === undefined)
          throw new LeaseError('UNSUPPORTED', `${redactedUrl(settings.url)} gives no backups: take it where the store is`)
        if (file === '-') return toStdout(lessor.backup({ signal }))
        const path = resolve(file)
        const bytes = await writeBackup(path, lessor.backup({ signal }))
        if (out.json) await out.data({ file: path, bytes })
        else out.note(`${path}: ${bytes} bytes`)
      })
    })
}

async function toStdout(pieces: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const piece of pieces) if (!process.stdout.write(piece)) await once(process.stdout, 'drain')
}

/** Under its name only when it is whole, was read back and is on the disk: what is there already is not lost to a backup that failed. */
export async function writeBackup(path: string, pieces: AsyncIterable<Uint8Array>): Promise<number> {
  // A name of its own: pids repeat, in containers most of all, and a draft that is there may be another's, who is still writing it.
  const draft = `${path}.${systemClock.bits().toString(36)}.part`
  const file = await open(draft, 'wx', 0o600)
  let bytes = 0
  try {
    try {
      async function* kept(): AsyncGenerator<Uint8Array> {
        for await (const piece of pieces) {
          await file.writeFile(piece)
          bytes += piece.length
          yield piece
        }
      }
      await readBackup(kept())
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(draft, path)
  } catch (error) {
    await rm(draft, { force: true })
    throw error
  }
  const folder = await open(dirname(path))
  await folder.sync().finally(() => folder.close())
  return bytes
}
