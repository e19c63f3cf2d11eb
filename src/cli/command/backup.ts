/** `leasehold backup`: writes the whole state into a file. */
import { once } from 'node:events'
import { open, rename, rm } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import type { Command } from 'commander'
import { systemClock } from '../../clock.ts'
import { redactedUrl } from '../../connect/url.ts'
import { LeaseError } from '../../errors.ts'
import { readBackup } from '../../replica/backup.ts'
import { addGlobalOptions, invoke } from '../invocation.ts'

export function backup(program: Command): void {
  addGlobalOptions(program.command('backup'))
    .summary('write the whole state into a file, while the store is in use')
    .description(
      'Writes the state at the end of the log into FILE (- for stdout). The file contains every entry and the hashes of keys, so its mode is 0600.',
    )
    .argument('<file>', 'the file to write; an existing file is replaced when the backup is complete')
    .action(async (file: string, _: unknown, self: Command) => {
      await invoke(self, async ({ lessor, out, signal, settings }) => {
        if (lessor.backup === undefined)
          throw new LeaseError(
            'UNSUPPORTED',
            `${redactedUrl(settings.url)} cannot make backups: run leasehold backup on the store itself (--store)`,
          )
        if (file === '-') return toStdout(lessor.backup({ signal }))
        const path = resolve(file)
        const bytes = await writeBackup(path, lessor.backup({ signal }))
        if (out.json) await out.data({ file: path, bytes })
        else out.note(`wrote the backup ${path}: ${bytes} bytes`)
      })
    })
}

async function toStdout(pieces: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const piece of pieces) if (!process.stdout.write(piece)) await once(process.stdout, 'drain')
}

/** Renames the draft to `path` only when it is complete, verified and on the disk. A backup that fails does not destroy an older one. */
export async function writeBackup(path: string, pieces: AsyncIterable<Uint8Array>): Promise<number> {
  // A random name: pids repeat, especially in containers, and a draft of that name may belong to a process that is still writing it.
  const draft = `${path}.${systemClock.bits().toString(36)}.part`
  const file = await open(draft, 'wx', 0o600)
  let bytes = 0
  try {
    try {
      async function* written(): AsyncGenerator<Uint8Array> {
        for await (const piece of pieces) {
          await file.writeFile(piece)
          bytes += piece.length
          yield piece
        }
      }
      await readBackup(written())
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
