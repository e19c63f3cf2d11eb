import { defineConfig } from 'vitest/config'
import { quickTests } from './test/support/quick-tests.ts'

/** Set by `npm run test:quick`. */
const quick = process.env.LEASEHOLD_TEST === 'quick'

export default defineConfig({
  test: {
    include: quick ? quickTests() : ['test/**/*.test.ts'],
    setupFiles: ['test/support/property-seed.ts', 'test/support/second-attempt.ts', ...(quick ? ['test/support/quick.ts'] : [])],
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // A busy machine may stall for longer than one second, the default.
    expect: { poll: { timeout: 10_000 } },
    coverage: { provider: 'v8', include: ['src/**/*.ts'], exclude: ['src/cli/**', 'src/dashboard/**'] },
  },
})
