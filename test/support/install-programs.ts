/** Installs the engines, the browser and the other programs of the tests, before the tests: `npm test` runs it beside the build. A test installs what is still missing. */
import { test } from 'vitest'
import { provideAll } from './engine.ts'

test('programs are installed', { timeout: 900_000 }, provideAll)
