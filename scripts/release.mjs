// `node scripts/release.mjs VERSION [--date YYYY-MM-DD] [--publish]`: makes a release, or without --publish shows what it would do and packs it.
//
// 1. The version must be higher than the present one, the work tree clean, and CHANGELOG.md must say something under Unreleased.
// 2. Writes the version to package.json, package-lock.json, the chart, the manifests and the Python client, and the heading of the release to CHANGELOG.md.
// 3. Refuses an image whose base has no digest. Whether a registry has that digest shows when the workflow of the tag builds the image.
// 4. Records the log of the release (test/support/released), which every later version must read, and packs it.
// 5. With --publish: commits and tags. The push of the tag starts the workflow that runs the tests and publishes with provenance
//    (`npm publish --provenance`): a laptop cannot prove where a package was built.
//
// Without --publish every file is put back as it was.

import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { imageBase } from './sbom.mjs'

const root = process.env.LEASEHOLD_RELEASE_ROOT ?? fileURLToPath(new URL('..', import.meta.url))
const SEMVER = /^(\d+)\.(\d+)\.(\d+)$/

/** The texts of a release. Throws an Error that says what to correct. */
export function releaseTexts({ version, date, packageText, lockText, changelog }) {
  const present = JSON.parse(packageText).version
  if (!SEMVER.test(version ?? '')) throw new Error(`${version ?? 'nothing'} is no version: write three numbers, such as 0.2.0`)
  if (!isHigher(version, present) && !(version === present && !changelog.includes(`## [${version}]`)))
    throw new Error(`${version} is not higher than ${present}`)
  const [, notes] = /^## \[Unreleased\]\n([\s\S]*?)(?=^## \[|$(?![\s\S]))/m.exec(changelog) ?? []
  if (notes === undefined) throw new Error('CHANGELOG.md has no heading "## [Unreleased]"')
  if (!/^- /m.test(notes)) throw new Error('CHANGELOG.md says nothing under Unreleased: write what users will notice')
  const withVersion = text => text.replace(`"version": "${present}"`, `"version": "${version}"`)
  return {
    packageText: withVersion(packageText),
    // Twice: of the lockfile, and of the package in it.
    lockText: withVersion(withVersion(lockText)),
    changelog: changelog.replace('## [Unreleased]\n', `## [Unreleased]\n\n## [${version}] - ${date}\n`),
    notes: notes.trim(),
  }
}

function isHigher(one, other) {
  const [a, b] = [SEMVER.exec(one), SEMVER.exec(other)]
  for (let i = 1; i <= 3; i++) if (Number(a[i]) !== Number(b[i])) return Number(a[i]) > Number(b[i])
  return false
}

function run(command, args, env = {}) {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: root, encoding: 'utf8', env: { ...process.env, ...env } })
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} failed:\n${stdout}${stderr}`)
  return stdout
}

function release(argv) {
  const [version] = argv.filter((word, i) => !word.startsWith('--') && argv[i - 1] !== '--date')
  const date = argv.includes('--date') ? argv[argv.indexOf('--date') + 1] : new Date().toISOString().slice(0, 10)
  const publish = argv.includes('--publish')
  // The chart and the manifests name the version of the image. The Python client has the same version.
  const named = ['ops/helm/leasehold/Chart.yaml', 'ops/kubernetes/leasehold.yaml', 'clients/python/src/leasehold_client/__init__.py']
  const deployed = named.filter(file => existsSync(join(root, file)))
  const paths = ['package.json', 'package-lock.json', 'CHANGELOG.md', ...deployed].map(file => join(root, file))
  const before = paths.map(path => readFileSync(path, 'utf8'))
  const present = JSON.parse(before[0]).version
  const texts = releaseTexts({ version, date, packageText: before[0], lockText: before[1], changelog: before[2] })
  if (publish && run('git', ['status', '--porcelain']) !== '') throw new Error('the work tree is not clean: commit or remove what is there')
  const base = imageBase(readFileSync(join(root, 'ops/docker/Dockerfile'), 'utf8'))
  const log = join(root, 'test/support/released', `${version}.json`)
  const hadLog = existsSync(log)
  let kept = false
  try {
    const after = [texts.packageText, texts.lockText, texts.changelog, ...before.slice(3).map(text => text.replaceAll(present, version))]
    for (const [i, text] of after.entries()) writeFileSync(paths[i], text)
    if (!hadLog) run('npx', ['vitest', 'run', 'test/kernel/released-logs.test.ts'], { LEASEHOLD_RECORD: version })
    const [packed] = JSON.parse(run('npm', ['pack', '--json', '--ignore-scripts', ...(publish ? [] : ['--dry-run'])]))
    console.log(`leasehold ${version}, ${packed.files.length} files, ${Math.round(packed.size / 1_024)} KiB packed`)
    console.log(`image on ${base.name}:${base.tag}, sha256:${base.digest}\n\n${texts.notes}\n`)
    kept = publish
    if (!publish) return console.log('Nothing was changed. To make the release: npm run release -- VERSION --publish')
    run('git', ['add', '--all'])
    run('git', ['commit', '-m', `Release ${version}`])
    run('git', ['tag', '-a', `v${version}`, '-m', `Release ${version}`])
    console.log(`Committed and tagged. Next: git push --follow-tags; the workflow of the tag publishes it with provenance.`)
  } finally {
    if (!kept) {
      for (const [i, path] of paths.entries()) writeFileSync(path, before[i])
      if (!hadLog) rmSync(log, { force: true })
    }
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    release(process.argv.slice(2))
  } catch (error) {
    console.error(`release: ${error.message}`)
    process.exitCode = 1
  }
}
