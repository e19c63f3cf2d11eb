/**
 * Keeps the compiled code of the program for its next start, in a folder of the user: half of what a short command such as `leasehold run` takes beyond a start
 * of Node is compiling. From Node 22.1 on, Node does this itself; on Node 20 the largest file of the bundle is compiled here.
 *
 * V8 trusts compiled code: a user who could write it could run anything as its owner. So it is kept below a folder that belongs to this user (with sudo, HOME may be
 * another user's), in files that only this user can write. Code of another version of Node or of other flags is refused by V8, and damaged code by its checksum.
 *
 * Nothing depends on it: without a folder, or when it cannot be read or written, the code is compiled.
 */
import {
  closeSync,
  constants,
  fstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import * as nodeModule from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Script } from 'node:vm'
import { crc32 } from 'node:zlib'

/** Beside this module in the bundle; there is none where the program runs unbundled. */
const CORE = './core.cjs'
/** As Node's own. Code that is compiled in this way cannot call `import()`: the bundle keeps modules that do in another file. */
const PARAMETERS = 'exports, require, module, __filename, __dirname'

/** `command`: the first word of the command line. Each command keeps the functions that it used. */
export function keepCompiledCode(command: string): void {
  const folder = cacheFolder()
  const { enableCompileCache } = nodeModule as { readonly enableCompileCache?: (folder: string) => unknown }
  if (enableCompileCache !== undefined) {
    if (folder !== undefined && process.env.NODE_COMPILE_CACHE === undefined) enableCompileCache(folder)
    return
  }
  loadCore(fileURLToPath(new URL(CORE, import.meta.url)), folder === undefined ? undefined : { folder, command })
}

/** Node's default is a folder in /tmp, where another user could put code of theirs. */
function cacheFolder(): string | undefined {
  const { NODE_DISABLE_COMPILE_CACHE, XDG_CACHE_HOME, HOME } = process.env
  const above = XDG_CACHE_HOME?.startsWith('/') ? XDG_CACHE_HOME : HOME?.startsWith('/') ? HOME : undefined
  if (NODE_DISABLE_COMPILE_CACHE !== undefined || above === undefined) return undefined
  if (statSync(above, { throwIfNoEntry: false })?.uid !== process.getuid?.()) return undefined
  return above === XDG_CACHE_HOME ? join(above, 'leasehold') : join(above, '.cache/leasehold')
}

/** Loads `path`, so that the `require` of every part of the bundle finds it. */
function loadCore(path: string, kept: { readonly folder: string; readonly command: string } | undefined): void {
  const source = readFileSync(path, 'utf8')
  const place = kept && join(kept.folder, `${kept.command}-${crc32(source).toString(16)}-${process.version}-${process.arch}.code`)
  const cachedData = place === undefined ? undefined : readCode(place)
  const text = `(function (${PARAMETERS}) {${source}\n})`
  const script = new Script(text, { filename: path, columnOffset: -text.indexOf('{') - 1, ...(cachedData && { cachedData }) })
  const module = new nodeModule.Module(path)
  const require = nodeModule.createRequire(path)
  module.filename = path
  require.cache[path] = module
  script.runInThisContext()(module.exports, require, module, path, dirname(path))
  module.loaded = true
  if (place !== undefined && (cachedData === undefined || script.cachedDataRejected === true))
    process.once('exit', () => writeCode(place, script.createCachedData()))
}

function readCode(path: string): Buffer | undefined {
  let file: number | undefined
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW)
    const { uid, mode } = fstatSync(file)
    if (uid !== process.getuid?.() || (mode & 0o022) !== 0) return undefined
    const kept = readFileSync(file)
    const code = kept.subarray(4)
    return kept.length > 4 && crc32(code) === kept.readUInt32LE() ? code : undefined
  } catch {
    return undefined
  } finally {
    if (file !== undefined) closeSync(file)
  }
}

/** Replaces what other versions of the program kept for this command. */
function writeCode(path: string, code: Buffer): void {
  const sum = Buffer.alloc(4)
  sum.writeUInt32LE(crc32(code))
  const folder = dirname(path)
  const written = `${path}.${process.pid}`
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    const command = path.slice(folder.length + 1).split('-', 1)
    writeFileSync(written, Buffer.concat([sum, code]), { mode: 0o600, flag: 'wx' })
    renameSync(written, path)
    for (const name of readdirSync(folder))
      if (name.startsWith(`${command}-`) && name.endsWith('.code') && join(folder, name) !== path)
        rmSync(join(folder, name), { force: true })
  } catch {
    rmSync(written, { force: true })
  }
}
