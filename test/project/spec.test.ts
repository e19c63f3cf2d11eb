import { expect, test } from 'vitest'
import { check, models, prepare } from '../../spec/check.mjs'

// Time is decided in a few rules that no unit test can exhaust; here each is searched in every order of events, and each known mistake is
// planted to see that the search would have found it.

const unable = await prepare()
const ci = process.env.CI === 'true'
if (unable) console.error(`NOT CHECKED: ${unable}`)

// On a laptop without spin the models are left to CI, and said to be; in CI their absence is a failure.
if (unable && ci)
  test('spin is here to search the models', () => {
    expect.fail(unable)
  })

const says = { holds: 'it holds that', breaks: 'the search catches', reaches: 'it can happen that' } as const

for (const model of await models())
  for (const search of model.searches)
    test.skipIf(unable)(`in ${model.name}.pml ${says[search.kind]}: ${search.sentence}`, { timeout: 120_000 }, async () => {
      const { wrong } = await check(model.name, search)
      expect(wrong).toBeUndefined()
    })
