/** That `knownFinding` accepts nothing but a failed expectation in its claim, and that the table of findings and the tests agree. */
import { strict as assert } from 'node:assert'
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { type Finding, type FindingName, findings } from '../../sim/findings.ts'
import { expectFailure } from '../support/known-finding.ts'

const root = new URL('../../', import.meta.url)
const EXAMPLE = 'an-example' as string as FindingName

test('a claim that fails is what is expected', async () => {
  await expectFailure(EXAMPLE, async claim => {
    await claim(() => expect(1).toBe(2))
  })
  await expectFailure(EXAMPLE, async claim => {
    await claim(async () => await expect(Promise.reject(new Error('other'))).rejects.toThrow('this'))
  })
})

test('a claim that holds fails the test', async () => {
  const fixed = expectFailure(EXAMPLE, async claim => {
    await claim(() => expect(1).toBe(1))
  })
  await expect(fixed).rejects.toThrow('an-example is fixed')
})

test('an expectation that fails outside the claim fails the test', async () => {
  const unprepared = expectFailure(EXAMPLE, async claim => {
    expect(1, 'the set-up').toBe(2)
    await claim(() => expect(1).toBe(2))
  })
  await expect(unprepared).rejects.toThrow('the set-up')
})

test('an error in the claim that is no failed expectation fails the test', async () => {
  const thrown = expectFailure(EXAMPLE, async claim => {
    await claim(() => {
      throw new TypeError('a mistake in the test')
    })
  })
  await expect(thrown).rejects.toThrow('a mistake in the test')
  const asserted = expectFailure(EXAMPLE, async claim => {
    await claim(() => assert(false, 'an assertion of the code under test'))
  })
  await expect(asserted).rejects.toThrow('an assertion of the code under test')
})

test('a test that makes no claim, two claims, or does not await its claim fails', async () => {
  const bodies = [
    async () => {},
    async (claim: (expectations: () => void | Promise<void>) => Promise<void>) => {
      await claim(() => expect(1).toBe(2))
      await claim(() => expect(1).toBe(2))
    },
    async (claim: (expectations: () => void | Promise<void>) => Promise<void>) => {
      void claim(async () => new Promise(() => {}))
    },
  ]
  for (const body of bodies) await expect(expectFailure(EXAMPLE, body)).rejects.toThrow('one claim')
})

test('every finding of the table has a test in the file that it names, and every test names a finding of the table', () => {
  const listed = Object.entries<Finding>(findings).map(([name, { test: path }]) => `${name} in ${path}`)
  expect([...new Set(tested())].sort()).toEqual(listed.sort())
})

test('a finding has a short name and one sentence', () => {
  for (const [name, { sentence }] of Object.entries<Finding>(findings)) {
    expect(name).toMatch(/^[a-z]+(-[a-z]+)+$/)
    expect(sentence).toMatch(/^(?!.*\. ).+\.$/)
  }
})

/** `NAME in PATH` for every test that is marked with a finding. */
function tested(): string[] {
  const marks = /\bknownFinding\(\s*['"]([^'"]+)['"]/g
  return readdirSync(fileURLToPath(new URL('test/findings/', root)))
    .filter(file => file.endsWith('.test.ts'))
    .flatMap(file => {
      const source = readFileSync(new URL(`test/findings/${file}`, root), 'utf8')
      return [...source.matchAll(marks)].map(([, name]) => `${name} in test/findings/${file}`)
    })
}
