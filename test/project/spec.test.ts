/**
 * The models in spec/ hold in every order of events. Unit tests cannot cover the time rules exhaustively, so a model checker does; each known
 * mistake is planted to show that the search finds it.
 */
import { expect, test } from 'vitest'
import { check, models, prepare } from '../../spec/check.mjs'

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
