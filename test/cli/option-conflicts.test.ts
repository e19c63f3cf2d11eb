import { existsSync, writeFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { rememberFlags, withStoreFlags } from '../../src/cli/hints.ts'
import { Place } from '../support/cli.ts'

describe('options that contradict each other are rejected, and nothing is run', () => {
  const refused: readonly (readonly [words: RegExp, args: readonly string[]])[] = [
    [/--wait and --no-wait/, ['run', 'a', '--no-wait', '--wait', '3s', '--', 'touch', 'ran']],
    [/--wait and --no-wait/, ['run', 'a', '--wait', '3s', '--no-wait', '--', 'touch', 'ran']],
    [/--grace is longer than --ttl/, ['run', 'a', '--ttl', '1s', '--grace', '10s', '--', 'touch', 'ran']],
    [/--grace is longer than --ttl/, ['elect', 'a', '--ttl', '1s', '--grace', '10s', '--terms', '1', '--', 'touch', 'ran']],
    [/--skip-ok and -E/, ['run', 'a', '--skip-ok', '-E', '9', '--', 'touch', 'ran']],
    [/--shared and --units/, ['run', 'a', '--shared', '--units', '1', '--', 'touch', 'ran']],
    [/--tls-cert and --tls-key need each other/, ['serve', '--tls-cert', 'x']],
    [/--tls-cert and --tls-key need each other/, ['serve', '--tls-key', 'x']],
    [/--tls-ca without --tls-cert/, ['serve', '--tls-ca', 'x', '--listen', '0']],
    [/--dns-domain without --dns/, ['serve', '--dns-domain', 'x', '--listen', '0']],
    [/--dns-public without --dns/, ['serve', '--dns-public', '--listen', '0']],
  ]
  test.each(refused)('%s', async (words, args) => {
    await using here = new Place()
    const { code, stderr } = await here.answer(args)
    expect(stderr).toMatch(words)
    expect(code).toBe(64)
    expect(existsSync(here.file('ran'))).toBe(false)
  })
})

test('a conflict in the configuration file is a configuration error', async () => {
  await using here = new Place()
  writeFileSync(here.file('c.json'), JSON.stringify({ serve: { dnsDomain: 'x' } }))
  expect(await here.answer(['serve', '--config', here.file('c.json'), '--listen', '0'])).toMatchObject({
    code: 78,
    stderr: expect.stringMatching(/--dns-domain without --dns/),
  })
})

test('options that only look contradictory are accepted', async () => {
  await using here = new Place()
  for (const args of [
    ['--ttl', '60s', '--grace', '60s'],
    ['--ttl', '4s'], // the default grace is longer, but was not given
    ['--grace', '60s'],
    ['--wait', '3s'],
  ]) {
    // A lease may be lost if this machine stands still; only a refusal of the options is wrong.
    const { code, stderr } = await here.run(['run', 'a', ...args, '--', 'true'])
    expect(code, `${args.join(' ')}: ${stderr}`).not.toBe(64)
  }
})

test('a suggested command gets the named store and configuration file exactly once', () => {
  const hint = 'See leasehold history NAME, or ask: leasehold key ls. (leasehold key create --name admin --allow admin --store URL)'
  rememberFlags({})
  expect(withStoreFlags(hint)).toBe(hint)
  rememberFlags({ store: 'postgres://ann:secret@host/db?name=a', config: '/etc/l.json' })
  const flags = "--store 'postgres://ann@host/db?name=a' --config /etc/l.json"
  expect(withStoreFlags(hint)).toBe(
    `See leasehold history ${flags} NAME, or ask: leasehold key ls ${flags}. (leasehold key create --name admin --allow admin --store URL)`,
  )
  rememberFlags({})
})
