import { expect, test } from 'vitest'
import { quickTests } from './quick-tests.ts'

test('the quick loop has the tests of the kernel and of the memory and file stores', () => {
  expect(quickTests()).toEqual(
    expect.arrayContaining(['test/kernel/laws.test.ts', 'test/store/memory.test.ts', 'test/store/file/file.test.ts', 'test/lease.test.ts']),
  )
})

test('the quick loop has no test that needs an engine, a browser, a server or the command line', () => {
  const outside = /^test\/(cli|dashboard|server|wire|sim|store\/(postgres|redis|etcd))\/|engines\.test\.ts$/
  expect(quickTests().filter(path => outside.test(path))).toEqual([])
})
