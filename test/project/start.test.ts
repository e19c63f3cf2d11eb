/** The commands of a fresh clone. Options of `npm start` are checked before anything is installed or built, which takes a minute or two. */
import { spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { program } from '../../src/cli/program.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
/** What `npm start` reads before it installs: no packages, no build. */
const clone = mkdtempSync(join(tmpdir(), 'leasehold-start-'))

beforeAll(() => {
  mkdirSync(join(clone, 'docs/reference'), { recursive: true })
  cpSync(join(root, 'scripts'), join(clone, 'scripts'), { recursive: true })
  cpSync(join(root, 'docs/reference/command-line.md'), join(clone, 'docs/reference/command-line.md'))
})

afterAll(() => rmSync(clone, { recursive: true, force: true }))

function start(...words: readonly string[]) {
  // Without a PATH: npm could not be run.
  const env = { PATH: '' }
  return spawnSync(process.execPath, [join(clone, 'scripts/start.mjs'), ...words], { cwd: clone, env, encoding: 'utf8' })
}

test.each([
  [['--prot', '8200'], /there is no option --prot/],
  [['--port'], /--port needs a value/],
  [['--port', '--json'], /--port needs a value/],
  [['--port', 'http'], /--port is a number from 0 to 65535, not http/],
  [['--port=70000'], /--port is a number from 0 to 65535/],
  [['8200'], /Write: npm start -- --port 8200/],
  [['--demo', '--tls-cert', 'a.pem'], /there is no option --tls-cert/],
] as const)('npm start -- %s is refused before anything is installed', (words, message) => {
  const { status, stderr } = start(...words)
  expect(stderr).toMatch(message)
  expect({ status, installed: existsSync(join(clone, 'node_modules')) }).toEqual({ status: 64, installed: false })
})

test('npm start -- --help prints the options without a build', () => {
  const { status, stdout } = start('--help')
  expect({ status, stdout }).toEqual({ status: 0, stdout: expect.stringMatching(/--port <number>[\s\S]*--tls-cert <file>/) })
})

test('npm start accepts every option of serve and demo', async () => {
  const { commands } = await program(['serve', 'demo'])
  for (const command of commands) {
    const words = command.options.flatMap(({ long, required }) => [long!, ...(required ? ['1'] : [])])
    expect(start(...(command.name() === 'demo' ? ['--demo'] : []), ...words).stderr).toMatch(/^installing dependencies/)
  }
})

test('npm run leasehold runs the command line', () => {
  const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { scripts: Record<string, string> }
  const { stdout } = spawnSync('npm', ['run', '--silent', 'leasehold', '--', '--version'], { cwd: root, encoding: 'utf8' })
  expect({ script: scripts.leasehold, stdout }).toEqual({ script: 'exec node scripts/run.mjs dist/cli/leasehold.js', stdout: '0.1.0\n' })
})
