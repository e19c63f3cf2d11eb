import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // Real engines and processes on a busy machine: one that fails is tried once more, and the report says so ("retry x1"). What is wrong fails twice.
    retry: process.env.CI === 'true' ? 1 : 0,
    coverage: { provider: 'v8', include: ['src/**/*.ts'], exclude: ['src/cli/**', 'src/dashboard/**'] },
  },
})
