/** A test of the built package refuses a build that is not that of the present source. */
import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { requireFreshBuild } from './fresh-build.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** A project with the source a.ts, and its output from one minute later. Both are newer than the configuration of the compiler. */
class Compiled {
  readonly #folder = mkdtempSync(join(tmpdir(), 'leasehold-fresh-build-'))
  readonly #begun = Date.now() / 1_000 + 3_600

  constructor() {
    for (const name of ['src', 'out']) mkdirSync(join(this.#folder, name))
    this.write('src/a.ts', 0)
    this.write('out/a.js', 60)
  }

  /** Writes a file of this age, in seconds after the source. */
  write(path: string, seconds: number): void {
    writeFileSync(join(this.#folder, path), '')
    utimesSync(join(this.#folder, path), this.#begun + seconds, this.#begun + seconds)
  }

  remove(path: string): void {
    rmSync(join(this.#folder, path))
  }

  check(): void {
    const [src, out] = ['src', 'out'].map(name => relative(root, join(this.#folder, name))) as [string, string]
    requireFreshBuild([{ config: 'tsconfig.build.json', out, sources: { [src]: out } }])
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true })
  }
}

test('a build that is newer than its sources is accepted', () => {
  using project = new Compiled()
  expect(() => project.check()).not.toThrow()
})

test.each<[string, (project: Compiled) => void]>([
  ['a source was changed', project => project.write('src/a.ts', 120)],
  ['a source was added', project => project.write('src/b.ts', 0)],
  ['a source was removed', project => project.remove('src/a.ts')],
  ['an output is missing', project => project.remove('out/a.js')],
])('a build is refused if %s', (_, change) => {
  using project = new Compiled()
  change(project)
  expect(() => project.check()).toThrow(/is not the build of the present source\. Run: npm run build/)
})
