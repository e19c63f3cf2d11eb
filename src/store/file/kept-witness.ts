/**
 * The newest witness of an owned log (replica/witness.ts), in a file outside the folder of the log: in the runtime directory of the machine, until it reboots.
 *
 * If the folder is put back from an older copy, this file still knows how far the log had come, and the next owner notices before it grants anything. It is
 * written with each record and never synced. Where it cannot be kept, the clients of the log are the only witnesses.
 */
import { createHash } from 'node:crypto'
import { closeSync, constants, existsSync, readdirSync, readSync, realpathSync, rmSync, statSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { makeFolder, openPrivately } from '../../private-file.ts'
import type { WitnessKeeper } from '../../store.ts'

/** A witness has at most 256 bytes. Before it: its length, after it: a checksum. */
const RECORD = 264
const WITNESS = 2
const CHECKSUM = 260
/** Files of logs that have not been written for so long are removed, in ms. */
const FORGOTTEN = 30 * 86_400_000
/** Files that are looked at for that. */
const MAX_LOOKED_AT = 200

/** The file descriptor; undefined where there is no folder for it. */
function openFile(path: string): number | undefined {
  const name = createHash('sha256').update(realpathSync(path)).digest('hex').slice(0, 32)
  for (const folder of runtimeFolders())
    try {
      makeFolder(folder)
      removeForgotten(folder)
      return openPrivately(join(folder, `witness-${name}`), constants.O_RDWR | constants.O_CREAT)
    } catch {
      // the next one
    }
  return undefined
}

/** Files in memory, on Linux: a write to a disk would keep the event loop waiting, since the log is being written to the same disk. */
const MEMORY = '/dev/shm'

/** `RUNTIME_DIRECTORY` is set by systemd. */
function runtimeFolders(): readonly string[] {
  const { RUNTIME_DIRECTORY, XDG_RUNTIME_DIR } = process.env
  if (RUNTIME_DIRECTORY) return [RUNTIME_DIRECTORY.split(':')[0]!]
  if (XDG_RUNTIME_DIR) return [join(XDG_RUNTIME_DIR, 'leasehold')]
  const shared = process.platform === 'linux' && existsSync(MEMORY) ? [MEMORY, tmpdir()] : [tmpdir()]
  return shared.map(folder => join(folder, `leasehold-${process.getuid?.() ?? 'user'}`))
}

function removeForgotten(folder: string): void {
  const files = readdirSync(folder).filter(name => name.startsWith('witness-'))
  for (const name of files.slice(0, MAX_LOOKED_AT)) {
    const path = join(folder, name)
    const found = statSync(path, { throwIfNoEntry: false })
    if (found !== undefined && found.mtimeMs < statSync(folder).mtimeMs - FORGOTTEN) rmSync(path, { force: true })
  }
}

/** Keeps nothing unless it is open. */
export class KeptWitness implements WitnessKeeper {
  #file: number | undefined
  readonly #record = Buffer.alloc(RECORD)

  /** `path`: of the log, which exists. */
  open(path: string): void {
    this.#file = openFile(path)
  }

  read(): Uint8Array | undefined {
    if (this.#file === undefined) return undefined
    const record = Buffer.alloc(RECORD)
    if (readSync(this.#file, record, 0, RECORD, 0) < RECORD) return undefined
    if (record.readUInt32LE(CHECKSUM) !== crc32(record.subarray(0, CHECKSUM))) return undefined
    return record.subarray(WITNESS, WITNESS + record.readUInt16LE(0))
  }

  write(witness: Uint8Array): void {
    if (this.#file === undefined) return
    this.#record.writeUInt16LE(witness.length, 0)
    this.#record.set(witness, WITNESS)
    this.#record.writeUInt32LE(crc32(this.#record.subarray(0, CHECKSUM)), CHECKSUM)
    try {
      writeSync(this.#file, this.#record, 0, RECORD, 0)
    } catch {
      // The next record writes it again. Until then, the clients of the log are its witnesses.
    }
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file)
    this.#file = undefined
  }
}
