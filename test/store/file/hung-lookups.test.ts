/** Appends share the threads of libuv with look-ups of names, which may hang for as long as a resolver does not answer. */
import { execFile, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'

const program = fileURLToPath(new URL('../../support/store/hung-lookups.mjs', import.meta.url))
// A network in which only this process is, and a resolver that never answers.
const SETUP = 'ip link set lo up && mount --bind "$0" /etc/resolv.conf'

test('look-ups of names that hang delay no append', async context => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-lookups-'))
  try {
    const resolver = join(folder, 'resolv.conf')
    writeFileSync(resolver, `nameserver 127.0.0.1\noptions timeout:${EVENT_TIMEOUT / 1_000} attempts:1\n`)
    const able = spawnSync('unshare', ['-rmn', 'sh', '-c', SETUP, resolver])
    if (spawnSync('unshare', ['--version']).status !== 0 || able.status !== 0) {
      console.warn(`SKIPPED: no network and mount namespace is possible here (${able.stderr})`)
      return context.skip()
    }
    const words = ['-rmn', 'sh', '-c', `${SETUP} && exec "$1" "$2" "$3"`, resolver, process.execPath, program, join(folder, 'log.db')]
    const ended = await promisify(execFile)('unshare', words, { timeout: EVENT_TIMEOUT }).catch(error => error)
    expect(ended).toMatchObject({ stderr: '', signal: 'SIGKILL' })
    expect(JSON.parse(ended.stdout)).toEqual({ appended: 20, ended: 0 })
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
