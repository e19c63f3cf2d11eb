/** Every command that prints data prints it as JSON, with the fields that docs/command-line.md lists. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { completedCommands } from '../../src/cli/completion.ts'
import { program } from '../../src/cli/program.ts'
import { Place } from '../support/cli.ts'

const page = readFileSync(new URL('../../docs/command-line.md', import.meta.url), 'utf8')
const section = page.slice(page.indexOf('## JSON'), page.indexOf('\n## ', page.indexOf('## JSON') + 1))

/** The documented fields by the text of the first column. Words in brackets after a field are those of its items. */
const documented = new Map(
  [...section.matchAll(/^\| (`.*?|an error.*?) \| (.*) \|$/gm)].map(([, command, text]) => {
    const outer = text!.replace(/\(each with [^)]*\)/g, '')
    return [command!, [...outer.matchAll(/`(\w+)`/g)].map(([, field]) => field!)] as const
  }),
)

/** Commands whose output is not data: they run until stopped, talk to a person or to another program, or print a script. */
const NO_DATA = /^(serve|demo|mcp|guard|init|completion|register|elect|run|certify|plan|watch|doctor)$|^pool /

function fieldsOf(command: string): readonly string[] {
  const fields = documented.get(command)
  if (fields === undefined) throw new Error(`docs/command-line.md has no row for ${command}`)
  return fields.filter(field => !OPTIONAL.has(field))
}

/** Present only in some objects, as the page says. */
const OPTIONAL = new Set(['by', 'run', 'set'])

test('the table of the docs has a row for every command that prints data', async () => {
  const leaves = completedCommands(await program()).map(({ words }) => words.join(' '))
  const all = leaves.filter(name => name !== '' && !leaves.some(other => other.startsWith(`${name} `)))
  const rows = [...documented.keys()].join(' ')
  expect(all.filter(name => !NO_DATA.test(name) && !rows.includes(`\`${name}`))).toEqual([])
})

test('each command prints the documented fields, one object per line', async () => {
  await using here = new Place()
  const held = here.start(['run', 'jobs/a', '--json', '--', 'sh', '-c', 'echo up; read _; exit 3'])
  await held.printed(/up/)
  const check = async (row: string, ...args: string[]) => {
    const objects = await here.json(...args)
    expect(objects.length, args.join(' ')).toBeGreaterThan(0)
    for (const object of objects) expect(Object.keys(object), args.join(' ')).toEqual(expect.arrayContaining([...fieldsOf(row)]))
    return objects
  }
  const [listed] = await check('`ls [PREFIX]`', 'ls')
  const [grant] = (listed as { grants: { lease: number; remaining: number }[] }).grants
  expect(grant!.remaining).toBeGreaterThan(0)
  for (const field of /`grants` \(each with ([^)]*)\)/.exec(section)![1]!.matchAll(/`(\w+)`/g)) expect(grant).toHaveProperty(field[1]!)
  await check('`show LEASE`', 'show', String(grant!.lease))
  const [shown] = await here.json('show', 'jobs/a')
  expect(Object.keys(shown!)).toEqual(expect.arrayContaining(['resource', 'capacity', 'grants', 'queue', 'fence', 'revision']))
  expect(Object.keys((await here.json('explain', 'jobs/a'))[0]!)).toContain('explanation')
  held.process.stdin!.end('\n')
  const { code, stderr } = await held.finished
  expect(code).toBe(3)
  const notes = stderr
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line) as Record<string, unknown>)
  expect(notes).toMatchObject([
    { note: 'granted', resource: 'jobs/a', lease: grant!.lease },
    { note: 'ended', exit: 3, ran: expect.any(Number) },
  ])
  const [past] = await check('`history NAME`', 'history', 'jobs/a')
  expect(past).toMatchObject({ exit: 3, command: 'sh', cause: 'released' })
  await check('`policy set`, `policy unset`', 'policy', 'set', 'jobs', 'ttlMax=1h')
  await check('`policy get`', 'policy', 'get')
  expect(Object.keys((await here.json('policy', 'unset', 'jobs'))[0]!)).toEqual(['prefix', 'revision'])
  const others = ['jobs/b', 'jobs/c'].map(name => here.start(['run', name, '--', 'sh', '-c', 'echo up; exec sleep 600']))
  await Promise.all(others.map(other => other.printed(/up/)))
  await check('`break`', 'break', 'jobs/b')
  await check('`revoke`', 'revoke', 'jobs/c')
  expect((await Promise.all(others.map(({ finished }) => finished))).map(({ code }) => code)).toEqual([79, 79])
  await check('`backup`', 'backup', here.file('leases.backup'))
  await check('`restore`', 'restore', here.file('leases.backup'), '--clients-stopped', '--store', `file:${here.file('new.db')}`)
  await check('`key create`', 'key', 'create', '--name', 'ci', '--allow', 'admin')
  await check('`key ls`', 'key', 'ls')
  await check('`key limit`', 'key', 'limit', 'ci', '--limits', 'leases=5')
  await check('`key rotate`', 'key', 'rotate', 'ci', '--overlap', '1h')
  await check('`key revoke`', 'key', 'revoke', 'ci')
  await check('`migrate`', 'migrate', here.url, `file:${here.file('moved.db')}`)
  const wrong = await here.answer(['show', '/', '--json'])
  const { error } = JSON.parse(wrong.stderr) as { error: Record<string, unknown> }
  expect([wrong.stdout, Object.keys(error)]).toEqual([
    '',
    expect.arrayContaining([...documented.get('an error (stderr)')!.filter(field => field !== 'error')]),
  ])
})
