/**
 * The package as `npm pack` makes it, for tests that install it or look into it. Packing takes seconds of a processor, so one test packs and the others use what it
 * made. A change of any file that could be in the package is another package.
 */
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { folderLock } from './folder-lock.ts'
import { requireFreshBuild } from './fresh-build.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const CACHE = join(root, 'node_modules/.cache/leasehold-packed')
const TIMEOUT = 240_000
/** Without the settings of the npm that runs the tests: they name the folder of the repository. */
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(npm_|LEASEHOLD_)/i.test(name)))

export interface Packed {
  /** The file. It stays where it is: copy it. */
  readonly tarball: string
  readonly unpackedSize: number
  /** Paths in the package. */
  readonly files: readonly string[]
}

/** Throws if the build is older than the source. */
export async function packed(): Promise<Packed> {
  requireFreshBuild()
  const folder = join(CACHE, fingerprint())
  const report = join(folder, 'report.json')
  await using _lock = await folderLock(`${CACHE}.lock`)
  if (!existsSync(report)) {
    rmSync(CACHE, { recursive: true, force: true })
    mkdirSync(folder, { recursive: true })
    const args = ['pack', '--ignore-scripts', '--json', '--pack-destination', folder]
    const { stdout } = await promisify(execFile)('npm', args, { cwd: root, env, timeout: TIMEOUT })
    writeFileSync(report, stdout)
  }
  const [made] = JSON.parse(readFileSync(report, 'utf8')) as [
    { readonly filename: string; readonly unpackedSize: number; readonly files: readonly { readonly path: string }[] },
  ]
  return { tarball: join(folder, made.filename), unpackedSize: made.unpackedSize, files: made.files.map(({ path }) => path) }
}

/** Differs as soon as one of the files that npm may pack is another: by path, size and date. */
function fingerprint(): string {
  const { files } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { readonly files: readonly string[] }
  const hash = createHash('sha256')
  for (const path of ['package.json', ...files.filter(name => !name.startsWith('!'))].flatMap(filesAt).sort()) {
    const { size, mtimeMs } = statSync(join(root, path))
    hash.update(`${path} ${size} ${mtimeMs}\n`)
  }
  return hash.digest('hex').slice(0, 16)
}

function filesAt(path: string): string[] {
  if (statSync(join(root, path)).isFile()) return [path]
  return readdirSync(join(root, path), { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(entry => join(entry.parentPath, entry.name).slice(root.length))
}
