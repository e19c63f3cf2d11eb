// `npm run screenshots [-- FOLDER]`: makes the pictures of the dashboard and of the playground in docs/images/ again, from what their tests show in a real browser.
// FOLDER keeps the pictures of every view: light, dark, and on a phone.

import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { buildStale, install, projectsFor, root } from './build.mjs'
import { smallPng } from './small-png.mjs'

/** Pictures by the screenshot that each is made of. */
const PICTURES = {
  'dashboard-now': 'now-light',
  'dashboard-resource': 'resource-light',
  'dashboard-pools': 'pool-dark',
  'dashboard-agents': 'claims-light',
  'playground-zombie': 'playground-picture-zombie-writer',
  'playground-split': 'playground-picture-split-brain',
  'playground-lost': 'playground-picture-lost-tail',
}
const TESTS = ['test/dashboard/views.test.ts', 'test/playground/page.test.ts']
/** Bytes. They are part of every clone and of the package. */
const MAX_BYTES = 120_000

function make(folder) {
  const vitest = join(root, 'node_modules/vitest/vitest.mjs')
  const { status } = spawnSync(process.execPath, [vitest, 'run', ...TESTS], {
    cwd: root,
    stdio: 'inherit',
    env: { ...process.env, LEASEHOLD_SCREENSHOTS: folder },
  })
  if (status !== 0) return false
  for (const [name, taken] of Object.entries(PICTURES)) {
    const picture = join('docs/images', `${name}.png`)
    const bytes = smallPng(readFileSync(join(folder, `${taken}.png`)))
    writeFileSync(join(root, picture), bytes)
    console.log(`${picture}: ${Math.round(bytes.length / 1_000)} kB`)
    if (bytes.length > MAX_BYTES) {
      console.error(`${picture} is larger than ${MAX_BYTES / 1_000} kB`)
      return false
    }
  }
  return true
}

const [kept] = process.argv.slice(2)
const folder = kept === undefined ? mkdtempSync(join(tmpdir(), 'leasehold-screenshots-')) : resolve(kept)
try {
  process.exitCode = install() && buildStale(projectsFor('dist/')) && make(folder) ? 0 : 1
} finally {
  if (kept === undefined) rmSync(folder, { recursive: true, force: true })
}
