/**
 * The public declarations of the package, in one file, so that a review shows every change of a public type. They are those of the source: no build is
 * needed. After a change that is meant: `LEASEHOLD_RECORD=api npx vitest run test/project/api-report.test.ts`
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { declarationsOfEntries, exportsOf, textOf } from '../support/declarations.ts'

const REPORT = fileURLToPath(new URL('./api-report.txt', import.meta.url))

/** Each declaration appears once, under the first entry that exports it. */
function report(): string {
  const shown = new Map<string, string>()
  const entries = [...declarationsOfEntries()].sort(([a], [b]) => (a < b ? -1 : 1))
  const sections = entries.map(([entry, file]) => {
    const name = `leasehold${entry.slice(1)}`
    const declarations = [...exportsOf(file)]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([exported, at]) => {
        const before = shown.get(at)
        if (before !== undefined) return `${exported}: the one of ${before}`
        shown.set(at, name)
        const text = textOf(at)
        return at.endsWith(`#${exported}`) ? text : `${exported}:\n${text}`
      })
    return `==== ${name}\n\n${declarations.join('\n\n')}\n`
  })
  return sections.join('\n')
}

test('the public declarations are those of api-report.txt', () => {
  const now = report()
  if (process.env.LEASEHOLD_RECORD === 'api') writeFileSync(REPORT, now)
  const hint = 'If the change of a public type is meant, record it: LEASEHOLD_RECORD=api npx vitest run test/project/api-report.test.ts'
  expect(now, hint).toBe(readFileSync(REPORT, 'utf8'))
})
