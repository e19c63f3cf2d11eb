/** A real browser for tests: Debian's chromium, installed when it is missing and can be. */
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'

/** The path of the program, or undefined where there is none and none can be had. */
export async function programFor(name: 'chromium'): Promise<string | undefined> {
  const find = () => [`/usr/bin/${name}`, '/usr/bin/google-chrome', '/usr/lib/chromium/chromium'].find(path => existsSync(path))
  const found = find()
  if (found !== undefined || process.getuid?.() !== 0 || !existsSync('/usr/bin/apt-get')) return found
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const run = (...args: string[]) => spawnSync('apt-get', args, { env, timeout: 300_000, stdio: 'ignore' })
  run('update')
  run('-o', 'DPkg::Lock::Timeout=240', 'install', '-y', '--no-install-recommends', name)
  return find()
}
