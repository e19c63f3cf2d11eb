import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { csvLine, parseCsv } from '../../src/cli/csv.ts'
import { Place } from '../support/cli.ts'

const STUDENTS = ['key', 'import', 'students.csv', '--secrets', 'secrets.csv', '--accounts', '{name}', '--allow', 'acquire,read:gpus']

async function place(csv: string): Promise<Place> {
  const here = new Place()
  writeFileSync(here.file('students.csv'), csv)
  return here
}

test('each row becomes a key with its own bounds, and its secret is in a file that only its owner can read', async () => {
  await using here = await place(
    'name,group,limits,allow,members\r\nann,students,"leases=4,waiters=2",,no\r\n\r\n"ben b",,,"read:gpus,watch:",yes\r\n',
  )
  const { code, stderr } = await here.run(STUDENTS)
  expect([code, stderr]).toEqual([0, expect.stringMatching(/created 2 keys\. Their secrets are in secrets\.csv, and nowhere else/)])
  expect(await here.json('key', 'ls')).toMatchObject([
    { name: 'ann', group: 'students', limits: { leases: 4, waiters: 2 }, accounts: ['ann'], noMembers: true },
    {
      name: 'ben b',
      accounts: ['ben b'],
      allow: [
        { verb: 'read', prefix: 'gpus' },
        { verb: 'watch', prefix: '' },
      ],
    },
  ])
  expect(statSync(here.file('secrets.csv')).mode & 0o777).toBe(0o600)
  const secrets = parseCsv(readFileSync(here.file('secrets.csv'), 'utf8'))
  expect(secrets).toMatchObject([
    { cells: ['name', 'secret'] },
    { cells: ['ann', expect.stringMatching(/^lh_/)] },
    { cells: ['ben b', expect.stringMatching(/^lh_/)] },
  ])
  expect((await here.run(STUDENTS.map(word => (word === 'students.csv' ? 'none.csv' : word)))).stderr).toMatch(/none\.csv cannot be read/)
  const again = await here.run(STUDENTS)
  expect([again.code, again.stderr]).toEqual([64, expect.stringMatching(/students\.csv, line 2: a key ann exists already/)])
  writeFileSync(here.file('students.csv'), 'name\nann\ncid\n')
  expect((await here.run([...STUDENTS, '--skip-existing'])).stderr).toMatch(/secrets\.csv exists already/)
  const more = await here.run([...STUDENTS.map(word => (word === 'secrets.csv' ? 'more.csv' : word)), '--skip-existing'])
  expect([more.code, more.stderr]).toEqual([0, expect.stringMatching(/created 1 key\. .* 1 existed already/)])
})

test('of ten thousand rows one is wrong: nothing is created, nothing is written, and the row is named', async () => {
  const rows = Array.from({ length: 10_000 }, (_, i) => `student-${i},${i === 7_654 ? 'leases=many' : 'leases=4'}`)
  await using here = await place(`name,limits\n${rows.join('\n')}\n`)
  const { code, stderr } = await here.run(STUDENTS)
  expect([code, stderr]).toEqual([64, expect.stringMatching(/students\.csv, line 7656: [\s\S]*many[\s\S]*No key was created/)])
  expect(await here.json('key', 'ls')).toEqual([])
  expect(existsSync(here.file('secrets.csv'))).toBe(false)
})

test.each([
  ['a rule of the kernel refuses it', 'name,priority\nann,0..1\nben,9..1\n', /line 3: .*priority/],
  ['the scope has an unknown verb', 'name,allow\nann,fly:gpus\n', /line 2: there is no verb 'fly'/],
  ['two rows have one name', 'name\nann\nben\nann\n', /line 4: line 2 has the name ann too/],
  ['a row has too few cells', 'name,group\nann\n', /line 2: it has 1 cells instead of 2/],
  ['a row has no name', 'name,group\n,students\n', /line 2: it has no name/],
  ['a column is unknown', 'name,mail\nann,a@b\n', /line 1: the first line must name the columns/],
  ['a quote is not closed', 'name\n"ann\nben\n', /line 2: a quote is not closed/],
  ['there is no row', 'name\n', /line 1: no row follows/],
])('%s: the row is named and no key is created', async (_, csv, message) => {
  await using here = await place(csv)
  const { code, stderr } = await here.run(STUDENTS)
  expect([code, stderr]).toEqual([64, expect.stringMatching(message)])
  expect(await here.json('key', 'ls')).toEqual([])
})

test('what csvLine writes, parseCsv reads', () => {
  const cells = ['plain', 'a, b', 'say "hi"', 'two\nlines', '']
  expect(parseCsv(`${csvLine(cells)}\n${csvLine(['x', 1])}\n`)).toEqual([
    { line: 1, cells },
    { line: 3, cells: ['x', '1'] },
  ])
})
