/** How the dashboard writes values, and reads what an operator types. */
import { describe, expect, test } from 'vitest'
import { shellWord, snippetsFor } from '../../src/dashboard/copy-as.ts'
import {
  accountHues,
  calmDuration,
  duration,
  exactTime,
  hueOf,
  isUnder,
  parseTime,
  shortNumber,
  signalOf,
  visible,
} from '../../src/dashboard/format.ts'
import { parseRules } from '../../src/dashboard/policy-text.ts'

test.each([
  [0, '0 ms'],
  [999, '999 ms'],
  [4_230, '4.2 s'],
  [59_949, '59.9 s'],
  [59_960, '1 min'],
  [185_000, '3 min 5 s'],
  [3_599_600, '1 h'],
  [7_800_000, '2 h 10 min'],
  [442_800_000, '5 d 3 h'],
  [-5, '0 ms'],
])('%d ms is written as %s', (ms, text) => {
  expect(duration(ms)).toBe(text)
})

test('an age changes once a second and never in between', () => {
  expect([400, 1_999, 61_999, 3_601_500].map(calmDuration)).toEqual(['0 s', '1 s', '1 min 1 s', '1 h'])
})

test('a wall time that is no time is shown as it is', () => {
  expect(exactTime(1_700_000_000_250)).toBe('2023-11-14 22:13:20.250 UTC')
  expect(exactTime(Number.MAX_SAFE_INTEGER)).toBe(String(Number.MAX_SAFE_INTEGER))
})

test('a long number is shown by its last digits, a short one in full', () => {
  expect([7, 1_234_567, 281_474_976_710_657].map(shortNumber)).toEqual(['7', '1234567', '…10657'])
})

test('a name has the same colour everywhere', () => {
  expect(hueOf('ci-7')).toBe(hueOf('ci-7'))
  expect(new Set(Array.from({ length: 200 }, (_, i) => hueOf(`worker-${i}`))).size).toBeGreaterThan(5)
})

test('characters that hide or reverse text are made visible', () => {
  expect(visible('a\u202Eb\u0000c\u200Bd\ne')).toBe('a\\u202eb\\u0000c\\u200bd\\u000ae')
})

test('a prefix counts by whole segments', () => {
  expect([isUnder('jobs', 'jobs'), isUnder('jobs/', 'jobs/a'), isUnder('', 'x'), isUnder('jobs', 'jobs2')]).toEqual([
    true,
    true,
    true,
    false,
  ])
})

test.each([
  ['30s', 30_000],
  ['1h30m', 5_400_000],
  ['2.5 m', 150_000],
  ['45', 45_000],
  ['soon', undefined],
  ['', undefined],
])('the length of time %j is read as %j', (text, ms) => {
  expect(parseTime(text)).toBe(ms)
})

test('an exit code above 128 names the signal that it stands for', () => {
  expect([137, 143, 192, 131].map(signalOf)).toEqual([
    '128 + 9: ended by signal KILL',
    '128 + 15: ended by signal TERM',
    '128 + 64: ended by signal 64',
    '128 + 3: ended by signal QUIT',
  ])
  expect([1, 75, 128, 193, 255].map(signalOf)).toEqual(['', '', '', '', ''])
})

test('rules are read one a line, numbers as numbers', () => {
  expect(parseRules('capacity=3\n ttlMax = 5m\n\nqueue=fit')).toEqual({ capacity: 3, ttlMax: '5m', queue: 'fit' })
  expect(() => parseRules('capacity three')).toThrow('is not a rule')
})

describe('copy as', () => {
  const hostile = `a'; rm -rf "$HOME"; \`id\` #/\u2028\n</script>`

  test('a word of a shell is quoted unless it is plain', () => {
    expect(shellWord('jobs/nightly')).toBe('jobs/nightly')
    expect(shellWord('-rf')).toBe("'-rf'")
    expect(shellWord(hostile)).toBe(`'a'\\''; rm -rf "$HOME"; \`id\` #/\u2028\n</script>'`)
  })

  test('every language gets the name as one value', () => {
    const [cli, curl, typescript, python] = snippetsFor(hostile, 'http://127.0.0.1:7420').map(({ text }) => text)
    expect(cli).toContain(`leasehold explain ${shellWord(hostile)} --store leasehold://127.0.0.1:7420`)
    const path = hostile.split('/').map(encodeURIComponent).join('/')
    expect(curl).toContain(`curl -s ${shellWord(`http://127.0.0.1:7420/v1/resources/${path}`)}\n`)
    for (const program of [typescript!, python!]) {
      const [, literal] = /request\((".*?(?<!\\)"), /.exec(program)!
      expect(JSON.parse(literal!)).toBe(hostile)
      expect(program).not.toMatch(/[\u2028\u2029]/)
    }
  })

  test('a server with TLS is named as one', () => {
    expect(snippetsFor('a', 'https://leases.example')[0]!.text).toContain('--store leaseholds://leases.example')
  })
})

test('each account of a pool has a colour of its own, and that of its name where no other account has it', () => {
  const names = Array.from({ length: 10 }, (_, i) => `user-${i}`)
  const hues = accountHues(names)
  expect(new Set(hues.values()).size).toBe(10)
  expect(accountHues(['ann']).get('ann')).toBe(hueOf('ann'))
  expect(accountHues(Array.from({ length: 30 }, (_, i) => `user-${i}`)).size).toBe(30)
})
