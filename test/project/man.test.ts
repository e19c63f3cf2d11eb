/** The manual page: it has every command, and groff formats it without a complaint. */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { EXIT } from '../../src/cli/exit.ts'
import { program } from '../../src/cli/program.ts'
import { describeWith, programs } from '../support/engine.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const { man } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { man: string }
const page = join(root, man)

test('the package installs the manual page of its program', () => {
  expect(readFileSync(page, 'utf8')).toMatch(/^\.TH LEASEHOLD 1 /m)
})

describeWith([programs.groff], 'groff', () => {
  const { stdout, stderr, status } = spawnSync('groff', ['-man', '-ww', '-Tascii', '-P-bcou', page], { encoding: 'utf8' })

  test('formats it without a warning', () => {
    expect({ stderr, status }).toEqual({ stderr: '', status: 0 })
  })

  test('shows every command with its options, and every exit code', async () => {
    const all = await program()
    for (const command of all.commands.filter(command => command.name() !== 'help')) {
      expect(stdout, command.name()).toMatch(new RegExp(`^   ${command.name()} `, 'm'))
      for (const { long } of command.options) expect(stdout, `${command.name()} ${long}`).toContain(long)
    }
    const exits = stdout.split('EXIT STATUS')[1]!
    for (const code of Object.values(EXIT)) expect(exits).toMatch(new RegExp(`^ +${code}\\b`, 'm'))
  })
})
