// `npm run test:properties` runs the tests that try random cases again and again, each time with another seed and all their cases:
// `npm test` uses one seed, and a part of the cases of the longest ones.
//
// npm run test:properties -- --times 20    the number of seeds (default: 10)
// npm run test:properties -- --seed 1234   the first seed, which the others follow (default: a random one)

import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { root } from './build.mjs'

const { values } = parseArgs({ options: { times: { type: 'string', default: '10' }, seed: { type: 'string' } } })
const times = Number(values.times)
const first = Number(values.seed ?? Math.floor(Math.random() * 2 ** 30))
if (!Number.isSafeInteger(times) || times < 1 || !Number.isSafeInteger(first)) {
  console.error('Usage: npm run test:properties -- [--times N] [--seed N]: whole numbers')
  process.exit(64)
}

/** Tests with random cases, of fast-check or of their own. */
const IS_SEARCH = /from 'fast-check'|support\/(runs|resp-mutation)\.ts'/

const files = readdirSync(join(root, 'test'), { recursive: true, encoding: 'utf8' })
  .filter(path => path.endsWith('.test.ts') && IS_SEARCH.test(readFileSync(join(root, 'test', path), 'utf8')))
  .map(path => join('test', path))
const failed = []
for (let seed = first; seed < first + times; seed++) {
  console.log(`${files.length} files with seed ${seed} (${seed - first + 1} of ${times})`)
  const { status } = spawnSync('node_modules/.bin/vitest', ['run', '--reporter=dot', ...files], {
    cwd: root,
    env: { ...process.env, LEASEHOLD_PROPERTY_SEED: String(seed), LEASEHOLD_SEARCH: 'whole' },
    stdio: 'inherit',
  })
  if (status !== 0) failed.push(seed)
}
for (const seed of failed) console.log(`again: npm run test:properties -- --times 1 --seed ${seed}`)
console.log(`${times - failed.length} passed, ${failed.length} failed`)
process.exitCode = failed.length === 0 ? 0 : 1
