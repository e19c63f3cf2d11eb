/**
 * Setup of every test run. In CI, a test of the outer folders is retried once, and the report says so (`secondAttempts` in scripts/test.mjs): such tests
 * start programs, which start and answer late on a busy machine. Tests of guarantees set `retry: 0`.
 */
import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, type RuntimeConfig, vi } from 'vitest'

const FOLDERS = /^(cli|dashboard|mcp|ops|project)\//

const folder = fileURLToPath(new URL('..', import.meta.url))
const file = relative(folder, expect.getState().testPath ?? '')
if (process.env.CI === 'true' && FOLDERS.test(file)) vi.setConfig({ retry: 1 } as Partial<RuntimeConfig>)
