/** The shell snippets of README.md run as they are printed. Its TypeScript is checked by snippets.test.ts. */
import { chmodSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs'
import { beforeAll, expect, test } from 'vitest'
import { Place, program } from '../support/cli.ts'
import { describeWith, programs } from '../support/engine.ts'
import { requireFreshBuild } from '../support/fresh-build.ts'

beforeAll(() => requireFreshBuild())

const snippets = [...readFileSync(new URL('../../README.md', import.meta.url), 'utf8').matchAll(/^```sh\n(.*?)^```$/gms)].map(
  ([, text]) => text!,
)

function snippet(word: string): string {
  const found = snippets.filter(text => text.startsWith(word))
  expect(found, `README.md has one snippet that begins with ${word}`).toHaveLength(1)
  return found[0]!
}

/** With `leasehold` on the path, as where the package is installed. */
function place(): Place {
  const here = new Place()
  mkdirSync(here.file('bin'))
  chmodSync(program, 0o755)
  symlinkSync(program, here.file('bin/leasehold'))
  here.env.PATH = `${here.file('bin')}:${process.env.PATH}`
  return here
}

async function served(here: Place): Promise<string> {
  const server = here.start(['serve', '--listen', '127.0.0.1:0'])
  return (await server.printed(/127\.0\.0\.1:(\d+)\//))[1]!
}

test('the leasehold commands of README.md run, line by line, without a server', async () => {
  await using here = place()
  const { code, stdout, stderr } = await here.spawn('sh', ['-ec', snippet('leasehold run')]).finished
  expect({ code, stderr }).toMatchObject({ code: 0, stderr: expect.stringMatching(/leases\.backup: \d+ bytes/) })
  expect(stdout).toMatch(/held, with token \d+\nonly if it is free\nleading\n[\s\S]*released[\s\S]*jobs\/nightly is free/)
})

describeWith([programs.curl], 'the curl commands of README.md', () => {
  test('run', async () => {
    await using here = place()
    const port = await served(here)
    const { code, stdout } = await here.spawn('sh', ['-ec', snippet('curl').replaceAll('7420', port)]).finished
    expect(code).toBe(0)
    expect(stdout).toMatch(/"token":\d+[\s\S]*"resource":"jobs\/nightly"[\s\S]*"holder":"me"/)
  })
})

describeWith([programs['redis-cli']], 'the redis-cli commands of README.md', () => {
  test('run', async () => {
    await using here = place()
    const port = await served(here)
    const { code, stdout } = await here.spawn('sh', ['-ec', snippet('redis-cli').replaceAll('7420', port)]).finished
    expect(code).toBe(0)
    expect(stdout).toMatch(/token\n\d+[\s\S]*jobs\/hourly/)
  })
})

test('package.json has the commands for a fresh clone', () => {
  const { scripts } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    scripts: Record<string, string>
  }
  expect(new Set(snippet('npm start').match(/^npm (\w+)/gm))).toEqual(new Set(['npm start', 'npm test']))
  expect(Object.keys(scripts)).toEqual(expect.arrayContaining(['start', 'test', 'leasehold']))
})

test('README.md begins with a quick start, says why, then shows, compares, limits and promises', () => {
  const text = readFileSync(new URL('../../README.md', import.meta.url), 'utf8')
  const headings = [...text.matchAll(/^## (.*)$/gm)].map(([, heading]) => heading)
  const order = [
    'Quick start',
    'Why',
    'The library',
    'The same from the shell',
    'See it',
    'Which store',
    'Compared with others',
    'What is promised',
    'Links',
  ]
  expect(headings).toEqual(order)
  for (const other of ['redlock', 'Redisson', 'etcd', 'Consul', 'ZooKeeper', 'client-go', 'ShedLock', 'proper-lockfile'])
    expect(text.split('## Compared with others')[1]).toMatch(new RegExp(`^\\| ${other}`, 'm'))
})
