/** What a lock script may cost: every step, every item and every byte counts, before the work is done. */
import { describe, expect, test } from 'vitest'
import { LockScript } from '../../../src/face/redis/script.ts'
import { KeptScripts } from '../../../src/face/redis/script-cache.ts'

const STEPS = /more than 10000 steps/
const BYTES = /more than 1048576 bytes/

function run(source: string, args: readonly string[] = [], found = '') {
  return new LockScript(source).run(['k'], args, { call: () => found })
}

describe('a script is refused', () => {
  const long = 'x'.repeat(300_000)
  for (const [why, source, message, args] of [
    ['that answers one table 2^40 times', 'local t={1}; for i=1,40 do t={t,t} end return t', /nested deeper than 16/],
    ['that answers one table 2^15 times', 'local t={1}; for i=1,15 do t={t,t} end return t', STEPS],
    ['that answers a table in itself', 'local t={}; table.insert(t,t) return t', /nested deeper than 16/],
    ['that names such a table as a place', 'local t={1}; for i=1,40 do t={t,t} end local u=1 return u[t]', /has places/],
    ['that doubles a text', "local s='xxxxxxxxxxxxxxxx'; for i=1,40 do s=s..s end return #s", BYTES],
    ['that compares long texts', 'for i=1,9 do if ARGV[1] == ARGV[2] then return 0 end end return 1', BYTES, [long, `${long.slice(1)}y`]],
    ['that compares texts which it made', "local s=ARGV[1]..'' local n=0 for i=1,9 do if s==s..'' then n=n+1 end end return n", BYTES],
    ['that answers a long text several times', 'return {ARGV[1],ARGV[1],ARGV[1],ARGV[1]}', BYTES],
    ['that reads long texts as numbers', 'for i=1,9 do local n = tonumber(ARGV[1]) end', BYTES, ['1'.repeat(300_000)]],
    ['that counts with long texts', 'for i=1,9 do local n = ARGV[1] + 1 end', BYTES, [' '.repeat(300_000).concat('1')]],
    ['that cuts long texts', 'for i=1,9 do local n = string.sub(ARGV[1], 2) end', BYTES],
    ['that passes long texts on', "for i=1,9 do redis.call('get', ARGV[1]) end", BYTES],
    ['that calls by a long name', 'for i=1,9 do redis.call(ARGV[1]) end', BYTES],
    ['that copies a list again and again', `local t={${'1,'.repeat(2_000)}1} for i=1,9 do local u={unpack(t)} end`, STEPS],
    ['that spreads more arguments than a call can have', 'return {unpack(ARGV)}', STEPS, Array<string>(500_000).fill('')],
    ['that looks a name up through many scopes', `x=1 ${'do '.repeat(50)}for i=1,100 do x=x+x end ${'end '.repeat(50)}`, STEPS],
    ['that is longer than a page', `return "${'x'.repeat(8_192)}"`, /longer than 8192/],
    ['that opens long comments and closes none', '--[[\n'.repeat(1_000), /is not understood/],
  ] as const)
    test(why, () => {
      expect(() => run(source, args ?? [long])).toThrow(message)
    })

  test('that reads long values again and again', () => {
    expect(() => run("for i=1,90 do local v = redis.call('get', KEYS[1]) end", [], 'x'.repeat(16_384))).toThrow(BYTES)
  })
})

test('operators bind as in Lua', () => {
  expect(run('return 1 + 2 * 3 - 4 / 2')).toBe(5)
  expect(run("return 'a' .. 1 + 1 .. 'b'")).toBe('a2b')
  expect(run('return not nil == true and 1 < 2 or false')).toBe(1)
  expect(run('return -2 * 3 % 4')).toBe(-2)
  expect(run('return (1 + 2) * 3 == 9 and {1, {2, "x"}, false}')).toEqual([1, [2, 'x'], null])
})

test('kept scripts of a key are bounded in characters, and so are those of all keys; those of one key do not push out those of another', () => {
  const scripts = new KeptScripts()
  const source = (n: number) => `return ${n} --${'x'.repeat(8_000)}`
  const quiet = scripts.load(1, 'return 1').sha
  const shas = Array.from({ length: 400 }, (_, n) => scripts.load(2, source(n)).sha)
  expect(shas.filter(sha => scripts.get(2, sha) !== undefined)).toHaveLength(16)
  expect(scripts.get(2, shas.at(-1)!.toUpperCase())).toBeDefined()
  expect(scripts.get(1, quiet)).toBeDefined()
  expect(scripts.get(1, shas.at(-1)!)).toBeUndefined()
  scripts.flush(2)
  expect(scripts.get(2, shas.at(-1)!)).toBeUndefined()
  expect(scripts.get(1, quiet)).toBeDefined()
  for (let key = 3; key < 15; key++) for (let n = 0; n < 20; n++) scripts.load(key, source(n))
  expect(scripts.get(1, quiet), 'those of the key that sent none for longest').toBeUndefined()
  expect(scripts.get(14, shas[19]!)).toBeDefined()
})
