import { defineConfig } from 'vitest/config'
import { EVENT_TIMEOUT, QUICK_TIMEOUT, TEST_TIMEOUT } from './test/support/bounds.ts'
import { innerTests, quickTests, sharingTests } from './test/support/quick-tests.ts'

/** The groups of `npm test` and `npm run test:quick` (scripts/test.mjs), each by its own process of Vitest. Without the variable, every test can be named. */
const group = process.env.LEASEHOLD_TEST
const everything = 'test/**/*.test.ts'
const clients = 'test/face/**/*.test.ts'

const groups: Readonly<Record<string, { readonly include: string[] }>> = {
  inner: { include: innerTests() },
  clients: { include: [clients] },
  programs: { include: ['test/support/install-programs.ts'] },
  installation: { include: ['test/support/install-clients.ts'] },
  quick: { include: quickTests() },
}
/** Tests with processes and sockets: those that can share loaded modules, and the others, in one run. */
const outer = [
  { extends: true as const, test: { name: 'sharing', include: sharingTests(), isolate: false } },
  { extends: true as const, test: { name: 'alone', include: [everything], exclude: [clients, ...innerTests(), ...sharingTests()] } },
]
const computes = group === 'inner' || group === 'quick'

export default defineConfig({
  test: {
    ...(group === undefined ? { include: [everything] } : group === 'outer' ? { projects: outer } : groups[group]),
    setupFiles: ['test/support/property-seed.ts', ...(group === 'quick' ? ['test/support/quick.ts'] : [])],
    pool: 'forks',
    // Half of the time of tests that only compute would go into loading the same modules for each file.
    isolate: group !== 'inner',
    // Tests that compute use both cores of a small machine. The others wait for processes and engines much of their time.
    maxWorkers: computes ? 2 : 3,
    ...(group === 'installation' && { maxConcurrency: 3 }),
    testTimeout: group === 'quick' ? QUICK_TIMEOUT : TEST_TIMEOUT,
    hookTimeout: TEST_TIMEOUT,
    expect: { poll: { timeout: EVENT_TIMEOUT } },
    coverage: { provider: 'v8', include: ['src/**/*.ts'], exclude: ['src/cli/**', 'src/dashboard/**'] },
  },
})
