/** Where the settings of a command come from. */
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { settingsOf } from '../../src/cli/settings.ts'
import { Place } from '../support/cli.ts'

test('a flag takes precedence over the environment, that over the file, and that over the default', () => {
  using place = { path: new Place().path, [Symbol.dispose]() {} }
  const state = { XDG_STATE_HOME: place.path }
  mkdirSync(`${place.path}/leasehold`)
  const file = `${place.path}/leasehold/leasehold.json`
  expect(settingsOf({}, state)).toMatchObject({ url: `file:${place.path}/leasehold/leasehold.db`, urlSource: undefined, file: undefined })
  writeFileSync(file, JSON.stringify({ store: 'redis://file', holder: 'file', apiKey: 'file' }), { mode: 0o600 })
  expect(settingsOf({}, state)).toMatchObject({ url: 'redis://file', holder: 'file', apiKey: 'file', urlSource: `${file} ("store")` })
  const env = { ...state, LEASEHOLD_HOLDER: 'env', LEASEHOLD_API_KEY: 'env' }
  expect(settingsOf({}, env)).toMatchObject({ url: 'redis://file', holder: 'env', apiKey: 'env' })
  expect(settingsOf({}, { ...env, LEASEHOLD_URL: 'redis://env' })).toMatchObject({
    url: 'redis://env',
    urlSource: 'the environment (LEASEHOLD_URL)',
  })
  expect(settingsOf({ store: 'redis://flag', holder: 'flag' }, env)).toMatchObject({
    url: 'redis://flag',
    holder: 'flag',
    urlSource: undefined,
  })
  expect(settingsOf({}, { ...state, LEASEHOLD_URL: '' })).toMatchObject({ urlSource: `${file} ("store")` })

  chmodSync(file, 0o666)
  expect(() => settingsOf({}, state)).toThrow(/can be written by other users/)
  expect(settingsOf({ config: file }, state)).toMatchObject({ holder: 'file' })
  chmodSync(file, 0o600)
  for (const [text, complaint] of [
    ['{', /not JSON/],
    ['[]', /not an object/],
    ['{"stor":"x"}', /unknown setting "stor"/],
    ['{"store":1}', /must be a non-empty string/],
    ['{"serve":[]}', /must be an object/],
  ] as const) {
    writeFileSync(file, text)
    expect(() => settingsOf({}, state)).toThrow(complaint)
  }
})

test('paths in a configuration file are relative to its folder, and those of a flag to the working directory', () => {
  using place = { path: new Place().path, [Symbol.dispose]() {} }
  const file = `${place.path}/here.json`
  writeFileSync(file, JSON.stringify({ store: 'file:leases.db' }))
  expect(settingsOf({ config: file }, {}).url).toBe(`file:${place.path}/leases.db`)
  expect(settingsOf({ config: file, store: 'file:leases.db' }, {}).url).toBe(`file:${process.cwd()}/leases.db`)
})
