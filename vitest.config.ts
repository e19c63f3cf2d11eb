import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // What is polled for has been set going: one second, the default, is less than a busy machine may stand still.
    expect: { poll: { timeout: 10_000 } },
    coverage: { provider: 'v8', include: ['src/**/*.ts'], exclude: ['src/cli/**', 'src/dashboard/**'] },
  },
})
