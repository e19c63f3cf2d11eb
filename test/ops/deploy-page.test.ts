/** docs/deploy.md tells what is there: every field of the server's log, every file of ops/, and the signals of the units. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const root = fileURLToPath(new URL('../..', import.meta.url))
const page = readFileSync(join(root, 'docs/deploy.md'), 'utf8')

const sources = ['server', 'cli', 'mcp', 'guard', 'face'].flatMap(folder =>
  readdirSync(join(root, 'src', folder), { recursive: true, encoding: 'utf8' })
    .filter(path => path.endsWith('.ts'))
    .map(path => readFileSync(join(root, 'src', folder, path), 'utf8')),
)

/** The names of the first object in every call of the log above the level debug, without those of nested objects. */
function loggedFields(source: string): string[] {
  return [...source.matchAll(/\blog\.(?:info|warn|error)\(\s*\{/g)].flatMap(({ index, 0: call }) => {
    let depth = 1
    let top = ''
    for (let i = index + call.length; depth > 0; i++) {
      const char = source[i]!
      if ('{(['.includes(char)) depth++
      if ('})]'.includes(char)) depth--
      if (depth === 1 && !'})]'.includes(char)) top += char
    }
    return top.split(',').flatMap(item => /^\s*(\w+)\s*(?::|$)/.exec(item)?.[1] ?? [])
  })
}

test('every field that the server logs is in the table of docs/deploy.md', () => {
  const fields = new Set(sources.flatMap(loggedFields))
  expect([...fields]).toEqual(expect.arrayContaining(['store', 'tls', 'audit', 'error', 'outages', 'to']))
  const table = page.slice(page.indexOf('## Log'))
  expect([...fields].filter(field => !table.includes(`\`${field}\``))).toEqual([])
})

test('every file of ops/ that a user starts from is linked from docs/deploy.md', () => {
  const files = ['systemd', 'docker', 'kubernetes'].flatMap(folder =>
    readdirSync(join(root, 'ops', folder))
      .filter(name => !name.startsWith('.'))
      .map(name => `../ops/${folder}/${name}`),
  )
  expect(files.filter(file => !page.includes(`(${file})`))).toEqual([])
})

test('the version of the chart is that of the package', () => {
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string }
  const chart = readFileSync(join(root, 'ops/helm/leasehold/Chart.yaml'), 'utf8')
  expect(chart.match(/^(?:version|appVersion): (.*)$/gm)).toEqual([`version: ${version}`, `appVersion: ${version}`])
})

test('the workflow of a release builds the image, from the package that it publishes', () => {
  const workflow = readFileSync(join(root, '.github/workflows/release.yml'), 'utf8')
  expect(workflow).toMatch(/npm pack --pack-destination ops\/docker && docker build [\s\S]*npm publish/)
})

test('CI runs the suite on the versions of Node that are supported', () => {
  const workflow = readFileSync(join(root, '.github/workflows/ci.yml'), 'utf8')
  expect(workflow).toContain('node: [20, 22, 24]')
  expect(workflow).toContain('run: .ci/run')
})
