/** The sentences of refusals: one for each reason, made of its facts, and one that is still of use where something is missing. */
import { expect, test } from 'vitest'
import { type Fact, REASON_ROWS, type Reason } from '../src/kernel/reason.ts'
import { SENTENCES, sentence, sentenceOf, whyBadName, whyBadPrefix } from '../src/wording.ts'

const VALUES: Readonly<Record<string, Fact>> = { text: 'T', number: 7, flag: true, texts: ['t1', 't2'], numbers: [1, 2] }

function factsOf(reason: string, all: boolean): Readonly<Record<string, Fact>> {
  const given = Object.entries(REASON_ROWS[reason]!.facts).filter(([, type]) => all || !type.endsWith('?'))
  return Object.fromEntries(given.map(([name, type]) => [name, VALUES[type.replace('?', '')]!]))
}

test('every reason has a sentence that needs only the facts it always has, and names no others', () => {
  expect(Object.keys(SENTENCES).sort()).toEqual(Object.keys(REASON_ROWS).sort())
  for (const [reason, template] of Object.entries(SENTENCES)) {
    for (const all of [true, false]) {
      const said = sentence(reason, factsOf(reason, all))
      expect(said, reason).not.toMatch(/^refused|undefined|\[object|\{\w+[|?}]|\|list|\|path/)
      expect(said.trim(), reason).toBe(said)
    }
    for (const [, name] of template.matchAll(/\{(\w+)(?:\|\w+|\?)?\}/g))
      expect(Object.keys(REASON_ROWS[reason]!.facts), reason).toContain(name)
  }
})

test('a part in brackets is shown only if its facts are given', () => {
  const held = { resource: 'jobs/a', holder: 'ann', lease: 1, token: 2, since: 3, queue: 0 }
  expect(sentence('held', held)).toBe('jobs/a is held by ann')
  expect(sentence('held', { ...held, frozen: true })).toBe('jobs/a is held by ann, which may still use it')
  expect(sentence('held', { ...held, any: 2, of: 3 })).toBe('fewer than 2 of 3 are free; jobs/a is held by ann')
  expect(sentence('no-policy', { prefix: '' })).toBe('there is no policy')
  expect(sentence('deadlock', { cycle: ['a', 'b'] })).toBe(
    'waiting would close a cycle: a → b → what the client holds; release what is held first',
  )
  expect(sentence('deadlock', { cycle: [] })).toBe('waiting would close a cycle; release what is held first')
  const pool = { pool: 'g', members: 4, free: 0, queue: 2, count: 1 }
  expect(sentence('pool-held', pool)).toBe('the pool g cannot give 1 member now: 0 that match are free, and 2 wait')
  expect(sentence('pool-held', { ...pool, count: 0, total: 8, queue: 0 })).toBe('the pool g cannot give 8 units now: 0 that match are free')
})

test('facts are shown as they are, even if they look like a template', () => {
  const said = sentence('older-token', { resource: '{token}[{highest}]', token: 1, highest: 2 })
  expect(said).toBe('token 1 is older than 2, which {token}[{highest}] has already seen')
})

test('an unknown reason and a missing or wrong fact give a plain sentence with all that is known', () => {
  expect(sentence('from-a-newer-server', { resource: 'a', names: ['b', 'c'] })).toBe(
    'refused (from-a-newer-server): resource a; names b, c',
  )
  expect(sentence('gone', {})).toBe('refused (GONE, gone)')
  expect(sentence('deadlock', { cycle: 'a' as never })).toContain('DEADLOCK, deadlock')
  expect(sentence('toString', {})).toBe('refused (toString)')
  expect(sentenceOf({ reason: 'constructor' as Reason, facts: {} })).toBe('refused (constructor)')
})

test('a bad name is explained by the end of a sentence', () => {
  expect(whyBadName('a/b')).toBeUndefined()
  expect(whyBadName('')).toBe('is empty')
  expect(whyBadName('/a')).toBe('begins with a slash')
  expect(whyBadName(7)).toBe('must be text, not number')
  expect(whyBadPrefix('/')).toBe('is only a slash: leave it empty to mean everything')
})
