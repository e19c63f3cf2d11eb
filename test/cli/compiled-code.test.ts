import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import * as nodeModule from 'node:module'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { Place } from '../support/cli.ts'

/** From Node 22.1 on, Node keeps the code, in files that this program does not write. */
const byNode = 'enableCompileCache' in nodeModule

/** Takes a lease, and returns the files that are kept afterwards, with their contents. */
async function kept(place: Place, env: Readonly<Record<string, string>>): Promise<ReadonlyMap<string, Buffer>> {
  const { code, stdout, stderr } = await place.run(['run', 'job', '--', 'echo', 'ran'], { env })
  expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: 'ran\n', stderr: '' })
  const folder = place.file('caches/leasehold')
  if (!existsSync(folder)) return new Map()
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile())
  return new Map(files.map(({ parentPath, name }) => [join(parentPath, name), readFileSync(join(parentPath, name))]))
}

function placeWithCache() {
  const place = new Place({ NODE_COMPILE_CACHE: undefined, NODE_DISABLE_COMPILE_CACHE: undefined })
  mkdirSync(place.file('caches'))
  return { place, env: { XDG_CACHE_HOME: place.file('caches') } }
}

test('the second start of a command uses the compiled code of the first, and does not write it again', async () => {
  const { place, env } = placeWithCache()
  await using _ = place
  const first = await kept(place, env)
  expect(first.size).toBeGreaterThan(0)
  expect(statSync(place.file('caches/leasehold')).mode & 0o022).toBe(0)
  const inodes = [...first.keys()].map(path => statSync(path).ino)
  const second = await kept(place, env)
  for (const [path, code] of first) expect(second.get(path)?.equals(code), path).toBe(true)
  if (!byNode) expect([...second.keys()].map(path => statSync(path).ino)).toEqual(inodes)
})

test('code that is damaged, cut short, of another program or writable by others is not used, and is replaced', async () => {
  const { place, env } = placeWithCache()
  await using _ = place
  const first = await kept(place, env)
  if (byNode) return // Node checks what it keeps
  expect([...first.keys()].map(path => path.slice(path.lastIndexOf('/') + 1))).toEqual([expect.stringMatching(/^run-.*\.code$/)])
  const [[path, code]] = [...first] as [[string, Buffer]]
  expect(statSync(path).mode & 0o777).toBe(0o600)
  const damaged = Buffer.from(code)
  damaged[damaged.length >> 1]! ^= 1
  for (const bytes of [damaged, code.subarray(0, 1_000), code.subarray(0, 2), Buffer.alloc(0)]) {
    writeFileSync(path, bytes)
    expect((await kept(place, env)).get(path)!.length).toBeGreaterThan(100_000)
  }
  chmodSync(path, 0o666)
  await kept(place, env)
  expect(statSync(path).mode & 0o777).toBe(0o600)
  const stale = path.replace(/run-[^-]*/, 'run-0')
  writeFileSync(stale, code)
  writeFileSync(path, damaged)
  await kept(place, env)
  expect([existsSync(stale), existsSync(path)]).toEqual([false, true])
})

test('no compiled code is read from or written to a folder of another user, or one that cannot be written', async () => {
  const { place, env } = placeWithCache()
  await using _ = place
  // The folder of root stands for another user's, unless root runs the tests: then that of any user does.
  const root = process.getuid!() === 0
  if (root) chownSync(place.file('caches'), 65_534, 65_534)
  expect((await kept(place, root ? env : { ...env, XDG_CACHE_HOME: '/' })).size).toBe(0)
  expect((await kept(place, { ...env, XDG_CACHE_HOME: place.file('missing') })).size).toBe(0)
  expect((await kept(place, { ...env, NODE_DISABLE_COMPILE_CACHE: '1' })).size).toBe(0)
})
