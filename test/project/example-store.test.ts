import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { lessorSuite } from '../../src/testing/lessor-suite.ts'
import { storeSuite } from '../../src/testing/store-suite.ts'
import { packed } from '../support/packed.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const run = promisify(execFile)

/** An empty project with `leasehold` installed from its tarball. Nothing is fetched: it has no dependency that the example needs. */
async function installed(): Promise<Disposable & { readonly path: string }> {
  const path = mkdtempSync(join(tmpdir(), 'leasehold-installed-'))
  const { tarball } = await packed()
  writeFileSync(join(path, 'package.json'), JSON.stringify({ name: 'project', private: true }))
  const modules = join(path, 'node_modules')
  mkdirSync(join(modules, 'leasehold'), { recursive: true })
  await run('tar', ['-xzf', tarball, '-C', join(modules, 'leasehold'), '--strip-components=1'])
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
}

test('the example store passes the published suites from outside the package', async () => {
  using project = await installed()
  cpSync(join(root, 'examples/directory-store'), join(project.path, 'directory-store'), { recursive: true })
  const args = ['--test', '--test-reporter=tap', join(project.path, 'directory-store/directory-store.test.mjs')]
  const env = { ...process.env, NODE_OPTIONS: '', VITEST: '' }
  const { stdout } = await run(process.execPath, args, { cwd: project.path, env, maxBuffer: 1 << 26 }).catch(error => error)
  const failed = stdout.split('\n').filter((line: string) => /^\s*not ok/.test(line))
  const unused = async (): Promise<never> => Promise.reject(new Error('it is only counted'))
  expect(failed).toEqual([])
  const count = storeSuite(unused).length + lessorSuite(unused).length
  expect(stdout).toMatch(new RegExp(`^# pass ${count}$`, 'm'))
})
