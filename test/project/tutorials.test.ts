/**
 * The quick start, the tutorials of docs/start/ and the pages about TLS and for a lab can be followed: their files are written and their commands are run in order, as printed, in an empty folder where the package is installed.
 *
 * A comment before a block says what it is: `run` (with `exit N` where a failure is the point; the block of text after it is the expected output, `…` for anything), `background` (runs
 * until the next `stop` or the end of the page; `waits for TEXT`: until it has printed that), `environment`, or `file: NAME`. Blocks without a comment are not run: installing, and what needs other machines.
 */
import { chmodSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeAll, describe, expect, test } from 'vitest'
import { Place, program, type Running } from '../support/cli.ts'
import { requireFreshBuild } from '../support/fresh-build.ts'

beforeAll(() => requireFreshBuild())

const root = fileURLToPath(new URL('../..', import.meta.url))
const tutorials = readdirSync(join(root, 'docs/start')).map(name => `docs/start/${name}`)
const followed = ['docs/quick-start.md', ...tutorials, 'docs/operate/tls.md', 'docs/operate/lab.md']

interface Block {
  readonly line: number
  readonly mark: string
  readonly code: string
  /** What a block that is run prints, as the page shows it. */
  readonly output: string | undefined
}

function blocksOf(page: string): Block[] {
  const text = readFileSync(join(root, page), 'utf8')
  const marked = /^<!-- (\S[^\n]*) -->\n(?:```\w+\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?)?/gms
  return [...text.matchAll(marked)].map(({ 1: mark, 2: code = '', 3: output, index }) => ({
    line: text.slice(0, index).split('\n').length,
    mark: mark!,
    code,
    output,
  }))
}

/** An output as a page shows it: `…` stands for any text of a line, or for any lines where it is alone on a line. */
function patternOf(output: string): RegExp {
  const lines = output
    .trimEnd()
    .split('\n')
    .map(line => (line.trim() === '…' ? '[\\s\\S]*' : line.split('…').map(escaped).join('.*')))
  return new RegExp(lines.join('\\n(?:.*\\n)*?'))
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  await new Promise(resolve => server.close(resolve))
  return port
}

test('there are the five tutorials', () => {
  expect(tutorials).toEqual(['agents', 'gpus', 'nightly-job', 'scheduler', 'two-agents'].map(name => `docs/start/${name}.md`))
})

describe.each(followed)('%s', page => {
  test('can be followed from its first line to its last', async () => {
    await using here = new Place()
    mkdirSync(here.file('bin'))
    mkdirSync(here.file('node_modules'))
    chmodSync(program, 0o755)
    symlinkSync(program, here.file('bin/leasehold'))
    symlinkSync(root, here.file('node_modules/leasehold'))
    writeFileSync(here.file('package.json'), '{"type":"module"}')
    here.env.PATH = `${here.file('bin')}:${process.env.PATH}`
    here.env.NODE_NO_WARNINGS = '1'
    const port = String(await freePort())
    const background: Running[] = []
    const ran: number[] = []
    using _ = { [Symbol.dispose]: () => killLeftovers(here) }
    for (const { line, mark, code, output } of blocksOf(page)) {
      const [what, detail = ''] = mark.split(': ') as [string, string?]
      const script = code.replaceAll('7420', port)
      if (what === 'file') writeFileSync(here.file(detail), code)
      else if (what === 'environment') {
        for (const [, variable, value] of script.matchAll(/export (\w+)=(\S+)/g)) here.env[variable!] = value!
      } else if (what === 'background') {
        const running = here.spawn('sh', ['-c', `exec ${script}`])
        background.push(running)
        if (detail.startsWith('waits for ')) await running.printed(new RegExp(escaped(detail.slice('waits for '.length))))
        else await heldBy(here, running)
      } else if (what === 'stop') await end(background.splice(0))
      else {
        expect(what, `the comment in line ${line}`).toBe('run')
        const { exit, printed } = await runBlock(here, script)
        expect({ line, exit, printed }).toEqual({ line, exit: Number(/^exit (\d+)/.exec(detail)?.[1] ?? 0), printed })
        if (output !== undefined) expect(printed).toMatch(patternOf(output))
        ran.push(line)
      }
    }
    expect(ran.length).toBeGreaterThan(2)
    await end(background)
  })
})

test.each(tutorials)('%s needs no other page until its end', page => {
  const text = readFileSync(join(root, page), 'utf8')
  const lastSteps = text.split(/^## (?:What you have|Before others rely on it)$/m)
  expect(lastSteps).toHaveLength(2)
  expect(lastSteps[0]).not.toMatch(/\]\([^)]*\.md/)
})

/** With files for its output: programs that a block leaves running would keep pipes open. */
async function runBlock(here: Place, script: string): Promise<{ readonly exit: number | null; readonly printed: string }> {
  writeFileSync(here.file('block.sh'), script)
  const { code } = await here.spawn('sh', ['-c', 'exec timeout 60 sh -e block.sh > block.txt 2>&1 < /dev/null']).finished
  return { exit: code, printed: readFileSync(here.file('block.txt'), 'utf8') }
}

/** Programs that a block left running, whose ids the page keeps in files. */
function killLeftovers(here: Place): void {
  for (const file of readdirSync(here.path).filter(name => name.endsWith('.pid'))) {
    try {
      process.kill(Number(readFileSync(here.file(file), 'utf8')), 'SIGKILL')
    } catch {
      // It has ended.
    }
  }
}

/** Until a command in the background has its lease, or waits for it, so that the next block meets what the page says. */
async function heldBy(here: Place, running: Running): Promise<void> {
  await expect
    .poll(async () => (await here.run(['ls', '--json'])).stdout.split('\n').length + (running.stderr().includes('held') ? 1 : 0), {})
    .toBeGreaterThan(1)
}

async function end(background: readonly Running[]): Promise<void> {
  for (const running of background.toReversed()) {
    running.process.kill('SIGINT')
    await running.finished
  }
}
