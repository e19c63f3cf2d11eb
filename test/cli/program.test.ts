/** Command lines that are refused before anything is done. */
import { expect, test } from 'vitest'
import { Place } from '../support/cli.ts'

test('a meaningless request is refused with what to do instead', async () => {
  await using here = new Place()
  const cases: [number, string[], RegExp][] = [
    [64, ['show', '/'], /begins with a slash/],
    [64, ['ls', '//'], /begins with a slash/],
    [64, ['explain', 'a//b'], /empty segment/],
    [64, ['policy'], /leasehold policy set/],
    [64, ['key'], /leasehold key create/],
    [64, ['help', 'bogus'], /there is no command bogus/],
    [64, ['--json'], /no command was given/],
    [64, ['--store', 'file:x', 'key'], /key needs a subcommand[\s\S]*leasehold key create/],
    [64, ['serve', '--store', 'memory:', '--socket', `${'x'.repeat(200)}`], /too long for a socket/],
    [64, ['serve', '--store', 'memory:', '--socket', 'nowhere/s'], /nowhere is not a folder/],
    [64, ['key', 'create', '--name', 'ci'], /--allow/],
    [64, ['elect', 'a', '--terms', '0', '--', 'true'], /--terms/],
    [64, ['elect', 'a', '--terms', '-1', '--', 'true'], /--terms/],
    [64, ['certify', 'file:x', '--store', 'file:y'], /certify has no option --store/],
    [64, ['--store', 'file:y', 'certify', 'file:x'], /certify does not take --store/],
    [64, ['migrate', 'file:x', 'file:y', '--holder', 'me'], /migrate has no option --holder/],
    [64, ['--store', 'file:z', 'migrate', 'file:x', 'file:y'], /migrate does not take --store/],
  ]
  const ended = await Promise.all(cases.map(([, args]) => here.answer(args)))
  expect(ended.map(({ code, stdout }) => [code, stdout])).toEqual(cases.map(([code]) => [code, '']))
  for (const [i, { stderr }] of ended.entries()) expect(stderr).toMatch(cases[i]![2])
  expect(await here.json('key', 'ls')).toEqual([])
  const first = await here.answer(['key', 'create', '--name', 'ci', '--allow', 'read', '--json'])
  expect(first.stderr).toMatch(/first key[\s\S]*WARNING: no key allows 'admin' over everything/)
})
