import { chmodSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs'
import { expect, test } from 'vitest'
import { Place, program } from '../support/cli.ts'
import { describeWith, programs } from '../support/engine.ts'

const SLOW = 120_000

const snippets = [...readFileSync(new URL('../../README.md', import.meta.url), 'utf8').matchAll(/^```sh\n(.*?)^```$/gms)].map(
  ([, text]) => text!,
)

function snippet(word: string): string {
  const found = snippets.filter(text => text.startsWith(word))
  expect(found, `README.md has one snippet that begins with ${word}`).toHaveLength(1)
  return found[0]!
}

/** With `leasehold` on the path, as it is where the package is installed. */
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

test('what README.md says for the shell runs, line by line, without a server', { timeout: SLOW }, async () => {
  await using here = place()
  const { code, stdout, stderr } = await here.spawn('sh', ['-ec', snippet('leasehold run')]).finished
  expect({ code, stderr }).toMatchObject({ code: 0, stderr: expect.stringMatching(/leases\.backup: \d+ bytes/) })
  expect(stdout).toMatch(/mine, with token \d+\nonly if nobody else is at it\nin office\n[\s\S]*released[\s\S]*jobs\/nightly is free/)
})

describeWith([programs.curl], 'what README.md says for curl', () => {
  test('runs', { timeout: SLOW }, async () => {
    await using here = place()
    const port = await served(here)
    const { code, stdout } = await here.spawn('sh', ['-ec', snippet('curl').replaceAll('7420', port)]).finished
    expect(code).toBe(0)
    expect(stdout).toMatch(/"token":\d+[\s\S]*"resource":"jobs\/nightly"[\s\S]*"holder":"me"/)
  })
})

describeWith([programs['redis-cli']], 'what README.md says for redis-cli', () => {
  test('runs', { timeout: SLOW }, async () => {
    await using here = place()
    const port = await served(here)
    const { code, stdout } = await here.spawn('sh', ['-ec', snippet('redis-cli').replaceAll('7420', port)]).finished
    expect(code).toBe(0)
    expect(stdout).toMatch(/token\n\d+[\s\S]*jobs\/hourly/)
  })
})

test('the two commands for a fresh clone are there', () => {
  const { scripts } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    scripts: Record<string, string>
  }
  expect(snippet('npm start').match(/^npm (\w+)/gm)).toEqual(['npm start', 'npm test'])
  expect(Object.keys(scripts)).toEqual(expect.arrayContaining(['start', 'test']))
})
