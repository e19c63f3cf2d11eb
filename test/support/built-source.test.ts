import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { BUILT, builtModule } from './built-source.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const here = fileURLToPath(import.meta.url)

test('a module of the source is loaded as it was built, wherever it is imported from', () => {
  const built = join(root, 'dist/kernel/apply.js')
  expect(builtModule('../../src/kernel/apply.ts', here)).toBe(built)
  expect(builtModule('./apply.ts', join(root, 'src/kernel/end.ts'))).toBe(built)
  expect(built).toMatch(BUILT)
})

test.each([
  ['the dashboard, whose modules are bundled', '../../src/dashboard/page.ts'],
  ['a module that the build does not have', '../../src/kernel/no-such-file.ts'],
  ['what tests share', './bounds.ts'],
  ['the simulator', '../../sim/run.ts'],
  ['a file that is no module', '../../src/dashboard/page.css'],
  ['a package', 'vitest'],
])('as before: %s', (_, id) => {
  expect(builtModule(id, here)).toBeNull()
})
