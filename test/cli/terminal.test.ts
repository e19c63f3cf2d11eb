import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { listProcesses } from '../../src/cli/process/process-table.ts'
import { alive, eventually, Place, processesWith, program, type Running } from '../support/cli.ts'
import { hasHandledSignals } from '../support/signals.ts'

/** `script` of util-linux gives a program a terminal. It is part of every Debian. */
const there = process.platform === 'linux' && /util-linux/.test(spawnSync('script', ['--version'], { encoding: 'utf8' }).stdout ?? '')
if (!there) console.warn('SKIPPED: the tests of a real terminal need script(1) of util-linux')

function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`
}

/** Runs a program in its own terminal. Its stdin is what a user types. */
function inTerminal(here: Place, ...words: string[]): Running {
  return here.spawn('script', ['-qfec', `exec ${words.map(quoted).join(' ')}`, '/dev/null'], { env: { SHELL: '/bin/sh', TERM: 'xterm' } })
}

function leasehold(here: Place, ...args: string[]): Running {
  return inTerminal(here, process.execPath, program, ...args)
}

function type(running: Running, keys: string): void {
  running.process.stdin!.write(keys)
}

describe.skipIf(!there)('on a terminal', () => {
  test('the command reads from the terminal, can open it, and is in its foreground', async () => {
    await using here = new Place()
    const script =
      'read line; echo "read $line"; : </dev/tty && echo "has it"; read -r a b c d group e f g < /proc/$$/stat; set -- $(cat /proc/$$/stat); echo "group $5 of $8"'
    const running = leasehold(here, 'run', 'a', '--', 'sh', '-c', script)
    type(running, 'hello\n')
    await running.printed(/read hello/)
    await running.printed(/has it/)
    const [, group, foreground] = await running.printed(/group (\d+) of (\d+)/)
    expect(group).toBe(foreground)
    expect((await running.finished).code).toBe(0)
  })

  test('Ctrl-C reaches the command once, and leasehold ends with it', async () => {
    await using here = new Place()
    const patient = leasehold(
      here,
      'run',
      'a',
      '--',
      'sh',
      '-c',
      'trap "echo got it" INT; echo up; while [ ! -e stop ]; do sleep 0.05; done; exit 6',
    )
    await patient.printed(/up/)
    type(patient, '\u0003')
    await patient.printed(/got it/)
    await here.spawn('touch', [here.file('stop')]).finished
    const { code, stdout } = await patient.finished
    expect(code).toBe(6)
    expect(stdout.match(/got it/g)).toHaveLength(1)

    const mortal = leasehold(here, 'run', 'a', '--', 'sh', '-c', 'echo up; exec sleep 600')
    await mortal.printed(/up/)
    type(mortal, '\u0003')
    expect((await mortal.finished).code).toBe(130)
    expect(await here.json('ls')).toEqual([])
  })

  test('TERM that is sent to leasehold is forwarded', async () => {
    await using here = new Place()
    const running = leasehold(
      here,
      'run',
      'a',
      '--',
      'sh',
      '-c',
      'trap "echo got it; exit 9" TERM; echo "up $PPID"; while :; do sleep 0.05; done',
    )
    const [, pid] = await running.printed(/up (\d+)/)
    process.kill(Number(pid), 'SIGTERM')
    await running.printed(/got it/)
    expect((await running.finished).code).toBe(9)
  })

  test('every signal reaches the command once, whether it was sent to leasehold alone or to the whole job', async () => {
    await using here = new Place()
    const names = ['INT', 'QUIT', 'TERM', 'HUP', 'USR1', 'USR2', 'WINCH'] as const
    const traps = names.map(name => `trap 'echo "got ${name}."' ${name}`).join('; ')
    const running = leasehold(here, 'run', 'a', '--', 'sh', '-c', `${traps}; echo "up $PPID."; while [ ! -e stop ]; do sleep 0.05; done`)
    const pid = Number((await running.printed(/up (\d+)\./))[1])
    const inJob = new Set(listProcesses().flatMap(row => (row.group === pid ? [row.pid] : [])))
    const detector = processesWith('leasehold-signal-detector').find(each => inJob.has(each))!
    for (const [target, times] of [
      [pid, 1],
      [-pid, 2],
    ] as const)
      for (const name of names) {
        process.kill(target, `SIG${name}`)
        await running.printed(new RegExp(`(got ${name}\\.[\\s\\S]*){${times}}`))
        for (const each of [pid, detector]) await hasHandledSignals(each)
      }
    type(running, '\u0003')
    await running.printed(/(got INT\.[\s\S]*){3}/)
    type(running, '\u001c')
    await running.printed(/(got QUIT\.[\s\S]*){3}/)
    await here.spawn('touch', [here.file('stop')]).finished
    const { stdout } = await running.finished
    expect(names.map(name => stdout.split(`got ${name}.`).length - 1)).toEqual([3, 3, 2, 2, 2, 2, 2])
  })

  test('a server whose terminal is closed stops in order', async () => {
    await using here = new Place()
    const serve = [process.execPath, program, 'serve', '--listen', '127.0.0.1:0'].map(quoted).join(' ')
    // The shell forwards the hangup to its job, as interactive shells do.
    const script = `${serve} & job=$!; trap 'kill -HUP $job' HUP; wait $job; wait $job; echo "ended $?" >code`
    const running = inTerminal(here, 'sh', '-c', script)
    await running.printed(/http:/)
    running.process.kill('SIGKILL')
    expect(await eventually('it has ended', () => existsSync(here.file('code')) && readFileSync(here.file('code'), 'utf8'))).toBe(
      'ended 0\n',
    )
    expect((await here.run(['run', 'a', '--', 'true'])).code).toBe(0)
  })

  test('while it waits, one line shows the holder, the duration and the place in the queue, and is cleared when the wait is over', async () => {
    await using here = new Place()
    const holder = here.start(['run', 'a', '--holder', 'first', '--', 'sh', '-c', 'echo up; while [ ! -e stop ]; do sleep 0.05; done'])
    await holder.printed(/up/)
    const ahead = here.start(['run', 'a', '--json', '--', 'true'])
    await ahead.printed(/waiting/)
    const running = leasehold(here, 'run', 'a', '--', 'echo', 'mine')
    await running.printed(/\r\u001b\[Kwaiting for a: it has been held by first for [\d.]+ m?s, 1 ahead of you/)
    // Redrawn in place: there is never a second line.
    await eventually('it is drawn again', () => running.stdout().split('\r\u001b[Kwaiting').length > 2)
    expect(running.stdout()).not.toContain('\n')
    await here.spawn('touch', [here.file('stop')]).finished
    const { code, stdout } = await running.finished
    expect(code).toBe(0)
    expect(stdout.endsWith('\r\u001b[Kmine\r\n')).toBe(true)
  })

  test('Ctrl-C during the wait leaves the queue', async () => {
    await using here = new Place()
    const holder = here.start(['run', 'a', '--', 'sh', '-c', 'echo up; exec sleep 600'])
    await holder.printed(/up/)
    const running = leasehold(here, 'run', 'a', '--', 'true')
    await running.printed(/waiting for a/)
    type(running, '\u0003')
    expect((await running.finished).code).toBe(130)
    expect(await here.json('ls')).toMatchObject([{ queue: [] }])
  })

  test('a lost lease ends the command and its descendants, orphans included, and no other member of the pipeline', async () => {
    await using here = new Place()
    const shell = inTerminal(here, 'bash', '--norc', '--noprofile', '-i')
    const orphan = `sh -c "trap '' TERM HUP; echo orphan \\$\\$; while :; do sleep 0.1; done" & `
    const command = `trap '' TERM; (${orphan}) ; echo command $$; while :; do sleep 0.1; done`
    const neighbour = `trap '' PIPE; while read -r line; do echo "$line"; done; sleep 0.2; echo neighbour stays`
    const run = [process.execPath, program, 'run', 'a', '--grace', '300ms', '--', 'sh', '-c', command].map(quoted).join(' ')
    type(shell, `${run} | sh -c ${quoted(neighbour)}; echo "code \${PIPESTATUS[0]}"\n`)
    const pids = [Number((await shell.printed(/orphan (\d+)/))[1]), Number((await shell.printed(/command (\d+)/))[1])]
    expect(pids.map(alive)).toEqual([true, true])
    await here.run(['revoke', 'a'])
    await shell.printed(/code 79/)
    expect(shell.stdout()).toMatch(/neighbour stays/)
    await eventually('both have ended', () => pids.every(pid => !alive(pid)))
    type(shell, 'exit\n')
    await shell.finished
  })

  test('Ctrl-Z stops the job; if the lease was lost meanwhile, the command is ended when fg resumes it', async () => {
    await using here = new Place()
    const shell = inTerminal(here, 'bash', '--norc', '--noprofile', '-i')
    const run = (...args: string[]) => [process.execPath, program, 'run', ...args].map(quoted).join(' ')
    type(shell, `${run('a', '--ttl', '4s', '--', 'sh', '-c', 'echo "up $$"; exec sleep 654')}\n`)
    const pid = Number((await shell.printed(/up (\d+)/))[1])
    type(shell, '\u001a')
    await shell.printed(/Stopped/)
    expect((await here.run(['run', 'a', '--wait', '10m', '--', 'true'])).code).toBe(0)
    type(shell, 'fg; echo "code $?"\n')
    await shell.printed(/code 79/)
    expect(alive(pid)).toBe(false)
    type(shell, 'exit\n')
    await shell.finished
  })

  test('a hangup of the terminal ends the command', async () => {
    await using here = new Place()
    const mark = String(performance.now())
    const running = leasehold(here, 'run', 'a', '--', 'sh', '-c', `echo up; sleep 600; : ${mark}`)
    await running.printed(/up/)
    running.process.kill('SIGKILL')
    await eventually('nothing of it is left', () => processesWith(mark).length === 0)
    expect((await here.run(['run', 'a', '--wait', '10m', '--', 'true'])).code).toBe(0)
  })

  test('NO_COLOR is honoured, and there are no colours without a terminal', async () => {
    await using here = new Place()
    await here.json('policy', 'set', 'a', 'capacity=2')
    const coloured = await leasehold(here, 'policy', 'get').finished
    expect(coloured.stdout).toContain('\u001b[1mPREFIX')
    here.env.NO_COLOR = '1'
    expect((await leasehold(here, 'policy', 'get').finished).stdout).not.toContain('\u001b')
    here.env.NO_COLOR = ''
    expect((await here.run(['policy', 'get'])).stdout).not.toContain('\u001b')
  })
})
