import { expect, test } from 'vitest'
import { innerTests, quickTests, replacingTests, sharingTests } from './quick-tests.ts'

test('the quick loop has the tests of the kernel and of the memory and file stores', () => {
  expect(quickTests()).toEqual(
    expect.arrayContaining(['test/kernel/laws.test.ts', 'test/store/memory.test.ts', 'test/store/file/file.test.ts', 'test/lease.test.ts']),
  )
})

test('the quick loop has no test that needs an engine, a browser, a server or the command line', () => {
  const outside = /^test\/(cli|dashboard|server|wire|sim|store\/(postgres|redis|etcd))\/|engines\.test\.ts$/
  expect(quickTests().filter(path => outside.test(path))).toEqual([])
})

test('the inner tests of npm test have every quick test that replaces no modules, and no test of faces, engines, servers or the command line', () => {
  const replacing = replacingTests()
  expect(replacing).toEqual(expect.arrayContaining(['test/kernel/cost.test.ts', 'test/replica/next-rules.test.ts']))
  const shared = quickTests().filter(path => !replacing.includes(path))
  expect(innerTests()).toEqual(expect.arrayContaining([...shared, 'test/sim/referee.test.ts']))
  expect(innerTests().filter(path => replacing.includes(path))).toEqual([])
  const outside = /^test\/(cli|dashboard|face|server|wire|store\/(postgres|redis|etcd))\/|engines\.test\.ts$/
  expect(innerTests().filter(path => outside.test(path))).toEqual([])
})

test('tests that share modules beside processes are no inner tests, replace no modules and measure nothing of their process', () => {
  const sharing = sharingTests()
  expect(sharing).toEqual(
    expect.arrayContaining([
      'test/server/http/lease-routes.test.ts',
      'test/cli/command/run.test.ts',
      'test/face/redis/clients.test.ts',
      'test/project/readme.test.ts',
    ]),
  )
  const alone = ['test/server/hostile-cost.test.ts', 'test/server/http/fuzz.test.ts', 'test/replica/next-rules.test.ts']
  const inner = new Set(innerTests())
  expect(sharing.filter(path => inner.has(path) || alone.includes(path))).toEqual([])
})
