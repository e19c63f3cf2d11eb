/** Which process an agent is: on real chains of processes, and on those that other systems and hosts show. */
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type AncestorProcess, hostProcess } from '../../src/guard/host-process.ts'

const WALK = fileURLToPath(new URL('../support/print-host.mjs', import.meta.url))

describe('the host of a process, on a real chain', () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-chain-'))
  const repository = join(folder, 'a b')
  /** Starts a host that runs this command line, and compares the process that the walk finds at the end with the host. */
  const host = (line: string) => {
    const script = `const { execSync } = require('node:child_process'); console.log(process.pid + ' ' + execSync(process.argv[1], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim().split('\\n').at(-1))`
    const [pid, found] = execFileSync(process.execPath, ['-e', script, line], { cwd: repository, encoding: 'utf8', stdio: 'pipe' })
      .trim()
      .split(' ')
    return { pid, found }
  }
  const expectHost = (line: string) => {
    const { pid, found } = host(line)
    expect(found, line).toBe(pid)
  }

  beforeAll(() => {
    mkdirSync(join(repository, 'node_modules/.bin'), { recursive: true })
    execFileSync('git', ['init', '-q'], { cwd: repository })
    writeFileSync(join(repository, 'package.json'), '{"scripts":{"walk":"leasehold"}}')
    writeFileSync(join(repository, 'leasehold.mjs'), `#!/usr/bin/env node\nawait import(${JSON.stringify(WALK)})\n`)
    chmodSync(join(repository, 'leasehold.mjs'), 0o755)
    symlinkSync('../../leasehold.mjs', join(repository, 'node_modules/.bin/leasehold'))
    const run = `exec '${process.execPath}' '${WALK}' >&2`
    writeFileSync(join(repository, '.git/hooks/pre-commit'), `#!/bin/sh\n'${process.execPath}' '${WALK}' > '${folder}/found'\n`, {
      mode: 0o755,
    })
    writeFileSync(join(repository, 'wrapper'), `#!/bin/bash\n${run.replace(' >&2', '')}\n`, { mode: 0o755 })
    writeFileSync(
      join(repository, 'pre-commit.js'),
      `require('node:child_process').execFileSync(${JSON.stringify(process.execPath)}, [${JSON.stringify(WALK)}], { stdio: 'inherit' })\n`,
    )
  })
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  test('is found above a shell, a script file of a shell, env and timeout', () => {
    const walk = `'${process.execPath}' '${WALK}'`
    for (const line of [
      walk,
      `${walk}; true`,
      `sh -c "${walk}; true"; true`,
      './wrapper; true',
      `env X=1 timeout 20 sh -c "${walk}; true"; true`,
    ])
      expectHost(line)
  })

  test('is found above npx and npm run', () => {
    expectHost('npx --no-install leasehold; true')
    expectHost('npm run --silent walk; true')
  })

  test('is found above git and the script of its hook, and above a runner of hooks', () => {
    expectHost(`git -c user.name=t -c user.email=t@t commit -q --allow-empty -m x; cat '${folder}/found'`)
    expectHost(`'${process.execPath}' pre-commit.js; true`)
  })

  test('is the nearest of two hosts', () => {
    const outer = `const { execFileSync } = require('node:child_process'); process.stdout.write(execFileSync(process.execPath, ['-e', process.argv[1], process.argv[2]], { encoding: 'utf8' }))`
    const inner = `const { execSync } = require('node:child_process'); console.log(process.pid + ' ' + execSync(process.argv[1], { encoding: 'utf8' }).trim())`
    const printed = execFileSync(process.execPath, ['-e', outer, inner, `'${process.execPath}' '${WALK}'; true`], { encoding: 'utf8' })
    const [pid, found] = printed.trim().split(' ')
    expect(found).toBe(pid)
  })
})

describe('the host of a process, as systems show it', () => {
  const find = (...rows: readonly (readonly [program: string, ...args: string[]])[]) => {
    const table = rows.map(([program, ...args], i): AncestorProcess => ({ pid: 100 + i, parent: 101 + i, started: '1', program, args }))
    return hostProcess(100, pid => table[pid - 100])?.pid
  }

  type Row = readonly [program: string, ...args: string[]]

  test.each<readonly [string, number, ...Row[]]>([
    [
      'npm, which writes a title over its command line',
      102,
      ['dash', 'sh', '-c', 'x'],
      ['node', 'npm exec leasehold mcp'],
      ['claude', 'claude'],
    ],
    [
      'the script of a package runner',
      101,
      ['node', 'node', '--no-warnings', '/usr/lib/node_modules/npm/bin/npx-cli.js', 'leasehold'],
      ['claude', 'claude'],
    ],
    [
      'pre-commit, a program in Python',
      102,
      ['python3.11', 'python3', '/usr/bin/pre-commit', 'hook-impl'],
      ['git', 'git', 'commit'],
      ['codex', 'codex'],
    ],
    ['lefthook and husky', 102, ['lefthook', 'lefthook', 'run'], ['dash', 'sh', '.husky/pre-commit'], ['gemini', 'gemini']],
    [
      'a part of an application with several processes',
      101,
      ['Cursor Helper', 'Cursor Helper', '--type=utility'],
      ['Cursor', 'Cursor', '/repo'],
    ],
    ['a host that is a script', 101, ['zsh', '-zsh'], ['node', 'node', '/usr/local/bin/gemini']],
  ])('is above %s', (_, host, ...rows) => {
    expect(find(...(rows as readonly Row[]))).toBe(host)
  })

  test('is unknown where only the first process of the system is left', () => {
    expect(find(['bash', 'bash'], ['systemd', '/sbin/init'])).toBeUndefined()
    expect(hostProcess(7, () => undefined)).toBeUndefined()
  })
})
