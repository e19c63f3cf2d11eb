/** The script that makes releases: what it refuses, and that a dry run changes nothing. */
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test } from 'vitest'

const root = fileURLToPath(new URL('../../', import.meta.url))
const copy = mkdtempSync(join(tmpdir(), 'leasehold-release-'))
const FILES = ['package.json', 'package-lock.json', 'CHANGELOG.md', 'README.md', 'ops/docker/Dockerfile']

afterAll(() => rmSync(copy, { recursive: true, force: true }))

interface ReleaseScript {
  releaseTexts(given: Record<string, string>): { packageText: string; lockText: string; changelog: string; notes: string }
}

const given = {
  date: '2027-01-02',
  packageText: '{\n  "version": "0.1.0"\n}\n',
  lockText: '{\n  "version": "0.1.0",\n  "packages": { "": { "version": "0.1.0" }, "node_modules/x": { "version": "1.0.0" } }\n}\n',
  changelog: '# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n\n## [0.0.9] - 2026-01-01\n\n- Older.\n',
}

test('a release has its version in every file, its heading in the changelog, and its notes', async () => {
  const { releaseTexts } = (await import(join(root, 'scripts/release.mjs'))) as ReleaseScript
  const texts = releaseTexts({ ...given, version: '0.2.0' })
  expect(JSON.parse(texts.packageText).version).toBe('0.2.0')
  expect(JSON.parse(texts.lockText)).toEqual({
    version: '0.2.0',
    packages: { '': { version: '0.2.0' }, 'node_modules/x': { version: '1.0.0' } },
  })
  expect(texts.changelog).toContain('## [Unreleased]\n\n## [0.2.0] - 2027-01-02\n\n### Added\n\n- A thing.\n')
  expect(texts.notes).toBe('### Added\n\n- A thing.')
})

test.each([
  ['a word', { version: 'next' }, /no version: write three numbers/],
  ['a lower version', { version: '0.0.9' }, /not higher than 0\.1\.0/],
  ['an empty changelog', { version: '0.2.0', changelog: '## [Unreleased]\n\n## [0.0.9]\n\n- Older.\n' }, /says nothing under Unreleased/],
  ['a changelog without the heading', { version: '0.2.0', changelog: '# Changelog\n' }, /no heading/],
])('%s is refused', async (_, change, message) => {
  const { releaseTexts } = (await import(join(root, 'scripts/release.mjs'))) as ReleaseScript
  expect(() => releaseTexts({ ...given, ...change })).toThrow(message)
})

const dryRun = () =>
  execFileSync(process.execPath, [join(root, 'scripts/release.mjs'), '99.0.0'], {
    ...{ encoding: 'utf8', stdio: 'pipe' },
    env: { ...process.env, LEASEHOLD_RELEASE_ROOT: copy },
  })

test('a dry run packs the release and puts everything back as it was', () => {
  for (const file of FILES) cpSync(join(root, file), join(copy, file))
  mkdirSync(join(copy, 'test/support/released'), { recursive: true })
  writeFileSync(join(copy, 'test/support/released/99.0.0.json'), '{}')
  const digest = /@sha256:\w+/.exec(readFileSync(join(copy, 'ops/docker/Dockerfile'), 'utf8'))![0]
  const output = dryRun()
  expect(output).toMatch(/leasehold 99\.0\.0, \d+ files[\s\S]*### Added[\s\S]*Nothing was changed/)
  expect(output).toContain(digest.slice(1))
  for (const file of FILES) expect(readFileSync(join(copy, file), 'utf8')).toBe(readFileSync(join(root, file), 'utf8'))
  writeFileSync(join(copy, 'ops/docker/Dockerfile'), 'FROM node:24 AS base\n')
  expect(dryRun).toThrow(/no base with a digest: FROM node:24 AS base/)
})
