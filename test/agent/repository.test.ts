/** Repositories are found in folders of strangers: what is there costs a bounded number of reads of regular files. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { RepositoryFinder, repositoryOf } from '../../src/agent/repository.ts'

function folder() {
  const path = realpathSync(mkdtempSync(join(tmpdir(), 'leasehold-finder-')))
  return { path, at: (name: string) => join(path, name), [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
}

test('a .git that is a pipe or a device is no repository, and is not waited for', async () => {
  using here = folder()
  for (const name of ['pipe', 'zero', 'git']) mkdirSync(here.at(name))
  execFileSync('mkfifo', [here.at('pipe/.git')])
  symlinkSync('/dev/zero', here.at('zero/.git'))
  expect(await repositoryOf(here.at('pipe'))).toBeUndefined()
  expect(await repositoryOf(here.at('zero'))).toBeUndefined()
  mkdirSync(here.at('git/.git'))
  for (const name of ['commondir', 'config']) execFileSync('mkfifo', [here.at(`git/.git/${name}`)])
  expect((await repositoryOf(here.at('git/src')))?.root).toBe(here.at('git'))
})

test('a .git that is a link to a folder, or a file that names one, is a repository', async () => {
  using here = folder()
  mkdirSync(here.at('real/.git'), { recursive: true })
  writeFileSync(
    here.at('real/.git/config'),
    '[core]\n\turl = wrong\n[remote "origin"]\n\tfetch = x\n\turl = "git@github.com:acme/app.git"\n',
  )
  for (const name of ['link', 'file']) mkdirSync(here.at(name))
  symlinkSync(here.at('real/.git'), here.at('link/.git'))
  writeFileSync(here.at('file/.git'), `gitdir: ${here.at('real/.git')}\r\n`)
  for (const name of ['real', 'link', 'file']) expect((await repositoryOf(here.at(`${name}/new`)))?.prefix).toBe('repo/github.com/acme/app')
})

test('a configuration of blanks, and one that is too large, name no origin', async () => {
  using here = folder()
  mkdirSync(here.at('.git'))
  for (const text of [
    '\n'.repeat(1_000_000),
    ' '.repeat(1_000_000),
    `[remote "origin"]\nurl = a${' '.repeat(900_000)}b`,
    'x'.repeat(2 << 20),
  ]) {
    writeFileSync(here.at('.git/config'), text)
    expect((await repositoryOf(here.path))?.prefix).toMatch(/^repo\/local\//)
  }
})

test('an event looks at a bounded number of folders, and a path has a bounded length', async () => {
  const finder = new RepositoryFinder()
  const paths = Array.from({ length: 256 }, (_, i) => `/${i}${'/a'.repeat(2_000)}`)
  await expect(Promise.all(paths.map(path => finder.realPath(path, '/')))).rejects.toThrow(/more folders than are looked at/)
  await expect(new RepositoryFinder().realPath(`/${'a/'.repeat(1_000_000)}`, '/')).rejects.toThrow(/more than 4096 characters/)
  const flat = new RepositoryFinder()
  for (let i = 0; i < 10_000; i++) expect(await flat.realPath(`/tmp/${i}`, '/')).toContain(`/${i}`)
})

test('where the file system ignores case, one file has one name, as it is spelled there', async () => {
  using here = folder()
  mkdirSync(here.at('.git'))
  mkdirSync(here.at('src/Parts'), { recursive: true })
  writeFileSync(here.at('src/Parts/Caf\u00e9.ts'), '')
  const changed = async (path: string) => (await new RepositoryFinder().changed(path, here.path, false)).map(found => found.path)
  expect(await changed('SRC/parts/cafe\u0301.TS')).toEqual([here.at('SRC/parts/cafe\u0301.TS')])
  writeFileSync(here.at('.git/config'), '[core]\n\tignorecase = true\n')
  expect(await changed('SRC/parts/cafe\u0301.TS')).toEqual([here.at('src/Parts/Caf\u00e9.ts')])
  expect(await changed('SRC/New/A.ts')).toEqual([here.at('src/New/A.ts')])
})
