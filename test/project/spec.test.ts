/**
 * The models in spec/ hold in every order of events. Unit tests cannot cover the time rules exhaustively, so a model checker does; each known
 * mistake is planted to show that the search finds it.
 */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { check, compiled, models, prepare } from '../../spec/check.mjs'

const unable = await prepare()
const ci = process.env.CI === 'true'
if (unable) console.error(`NOT CHECKED: ${unable}`)

// Without spin the models are skipped with a message; in CI a missing spin is a failure.
if (unable && ci)
  test('spin is installed', () => {
    expect.fail(unable)
  })

const says = { holds: 'it holds that', breaks: 'the search catches', reaches: 'it can happen that' } as const

for (const model of await models())
  for (const search of model.searches)
    test.skipIf(unable)(`in ${model.name}.pml ${says[search.kind]}: ${search.sentence}`, async () => {
      const { wrong } = await check(model.name, search)
      expect(wrong).toBeUndefined()
    })

test.skipIf(unable)('a search that did not change is not compiled again, and one that changed is', async () => {
  const work = mkdtempSync(join(tmpdir(), 'leasehold-spec-'))
  onTestFinished(() => rmSync(work, { recursive: true, force: true }))
  for (const part of ['h', 'm', 'b', 't', 'p']) writeFileSync(join(work, `pan.${part}`), '')
  writeFileSync(join(work, 'pan.c'), '#include "pan.m"\nint main() { return 0; }\n')
  const compile = () => compiled(work, 'test', ['gcc', '-O0'])
  const first = (await compile()).program!
  rmSync(join(work, 'pan'), { force: true })
  expect(await compile()).toEqual({ program: first })
  expect(existsSync(join(work, 'pan'))).toBe(false)
  writeFileSync(join(work, 'pan.m'), 'int changed;')
  const second = (await compile()).program!
  expect(second).not.toBe(first)
  expect([existsSync(first), existsSync(second)]).toEqual([false, true])
  rmSync(second)
})
