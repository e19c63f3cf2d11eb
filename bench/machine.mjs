// The machine of a run. Figures of two machines cannot be compared.
import { statfsSync } from 'node:fs'
import { cpus, release, tmpdir, totalmem, type } from 'node:os'

/** Numbers that statfs of Linux gives to file systems. */
const FILE_SYSTEMS = { 61267: 'ext4', 1481003842: 'xfs', 2435016766: 'btrfs', 16914836: 'tmpfs', 2035054128: 'overlayfs' }

export function machine() {
  const all = cpus()
  const { type: kind } = statfsSync(tmpdir())
  return {
    cores: all.length,
    processor: all[0]?.model.trim() ?? 'unknown processor',
    memory: `${(totalmem() / 2 ** 30).toFixed(1)} GiB`,
    system: `${type()} ${release()}`,
    // Nothing is durable on tmpfs, so a sync is free there.
    files: `${FILE_SYSTEMS[kind] ?? `file system ${kind.toString(16)}`} at ${tmpdir()}`,
    node: process.version,
  }
}

export function shownMachine({ cores, processor, memory, system, files, node }) {
  return `${cores} × ${processor}, ${memory}, ${system}, ${files}, Node ${node}`
}
