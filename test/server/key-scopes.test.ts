/** Scopes of a key as text. */
import { expect, test } from 'vitest'
import { MAX_SCOPES, scopesIn, scopesInWords } from '../../src/server/key-scopes.ts'

/** `verb:prefix` for each scope. */
function understood(text: string): string[] {
  return scopesIn(text).map(({ verb, prefix }) => `${verb}:${prefix}`)
}

test('after a prefix, a comma and a verb begin another scope', () => {
  expect(understood('read:,watch:,break:')).toEqual(['read:', 'watch:', 'break:'])
  expect(understood('acquire,read:jobs/,watch,break:logs/')).toEqual(['acquire:jobs/', 'read:jobs/', 'watch:logs/', 'break:logs/'])
  expect(understood('read:jobs/, watch')).toEqual(['read:jobs/', 'watch:'])
  expect(understood('acquire,read')).toEqual(['acquire:', 'read:'])
})

test('colons belong to the prefix', () => {
  expect(understood('acquire,read:redis/lock:orders,watch:redis/')).toEqual([
    'acquire:redis/lock:orders',
    'read:redis/lock:orders',
    'watch:redis/',
  ])
})

test('a comma after a prefix that no verb follows is refused', () => {
  for (const text of ['read:a,b', 'read:a,b:c', 'read:a,', 'read:a,,watch:', 'read:,Watch:'])
    expect(() => scopesIn(text)).toThrow(/begins another scope.*over HTTP/)
  for (const text of ['', ',', 'fly', 'read,fly:jobs/', ':jobs/']) expect(() => scopesIn(text)).toThrow(/there is no verb/)
})

test('a long text is refused before it becomes a long list', () => {
  expect(() => scopesIn('read,'.repeat(MAX_SCOPES + 1))).toThrow(`at most ${MAX_SCOPES} scopes`)
  expect(() => scopesIn('read:,'.repeat(MAX_SCOPES + 1))).toThrow(`at most ${MAX_SCOPES} scopes`)
})

test('scopes in words say which verbs are for which names', () => {
  expect(scopesInWords(scopesIn('read,watch:,acquire:jobs/,break:'))).toBe('read, watch, break on everything; acquire on jobs/')
})
