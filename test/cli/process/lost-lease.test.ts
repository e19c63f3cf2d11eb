/** What `run` does with its command when the lease is lost, or when `leasehold` itself is killed. */
import { rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { alive, eventually, Place, processesWith } from '../../support/cli.ts'

/** A command that ignores TERM, with a child that ignores it too. It prints the pids of both. */
const STUBBORN =
  'trap "echo term" TERM; sh -c \'trap "" TERM; echo inner $$; while :; do sleep 0.1; done\' & echo outer $$; while :; do sleep 0.1; done'

async function leaseOf(here: Place): Promise<string> {
  const [resource] = (await here.json('ls')) as [{ grants: [{ lease: number }] }]
  return String(resource.grants[0].lease)
}

describe('when the lease is lost while the command runs', () => {
  test('the whole group is ended with TERM, grace and KILL, the exit code is 79, and the next command starts only then', async () => {
    await using here = new Place()
    const running = here.start(['run', 'a', '--grace', '3s', '--', 'sh', '-c', STUBBORN])
    const outer = Number((await running.printed(/outer (\d+)/))[1])
    const inner = Number((await running.printed(/inner (\d+)/))[1])
    // A process that has ended and was not collected by its parent still has a pid.
    const look = `grep -Eqs '^State:.[^ZX]' /proc/${outer}/status /proc/${inner}/status || echo alone`
    const next = here.start(['run', 'a', '--json', '--', 'sh', '-c', look])
    await next.printed(/waiting/)
    const lease = await leaseOf(here)
    const asked = performance.now()
    await here.answer(['revoke', lease])
    await running.printed(/term/)
    expect(alive(inner)).toBe(true)
    const { code, stderr } = await running.finished
    expect(performance.now() - asked).toBeGreaterThan(3_000)
    expect(code).toBe(79)
    expect(stderr).toMatch(/revoked by .*TERM now, KILL in 3 s/)
    expect([alive(outer), alive(inner)]).toEqual([false, false])
    expect((await next.finished).stdout).toBe('alone\n')
  })

  test('a command that ends within its grace is not killed, and the exit code is 79', async () => {
    await using here = new Place()
    const running = here.start(['run', 'a', '--', 'sh', '-c', 'trap "echo tidy; exit 0" TERM; echo up; while :; do sleep 0.05; done'])
    await running.printed(/up/)
    await here.answer(['break', 'a'])
    expect(await running.finished).toMatchObject({ code: 79, stdout: 'up\ntidy\n' })
  })

  test('--on-lost term never kills; --on-lost ignore keeps the command running, with a warning and its own exit code', async () => {
    await using here = new Place()
    const script = 'trap "echo term" TERM; echo up; while [ ! -e go ]; do sleep 0.05; done; exit 4'
    const start = (how: string) => here.start(['run', how, '--on-lost', how, '--grace', '100ms', '--', 'sh', '-c', script])
    const [term, ignore] = [start('term'), start('ignore')]
    await Promise.all([term.printed(/up/), ignore.printed(/up/)])
    await here.answer(['revoke', 'term'])
    await here.answer(['revoke', 'ignore'])
    await Promise.all([term.printed(/term/), ignore.printed(/The command keeps running/)])
    await here.spawn('touch', [here.file('go')]).finished
    expect(await term.finished).toMatchObject({ code: 79, signal: null })
    expect(await ignore.finished).toMatchObject({ code: 4, stdout: 'up\n' })
  })

  test('a command that is stopped at that moment is resumed, handles TERM and is not killed', async () => {
    await using here = new Place()
    const script = 'trap "echo tidy; exit 0" TERM; echo $$; while :; do sleep 0.05; done'
    const running = here.start(['run', 'a', '--ttl', '1h', '--grace', '15m', '--', 'sh', '-c', script])
    const pid = Number((await running.printed(/(\d+)\n/))[1])
    process.kill(pid, 'SIGSTOP')
    await here.answer(['revoke', 'a'])
    expect(await running.finished).toMatchObject({ code: 79, stdout: `${pid}\ntidy\n` })
  })

  test('after a stall longer than the ttl, the command is ended when leasehold wakes', async () => {
    await using here = new Place()
    const running = here.start(['run', 'a', '--ttl', '4s', '--', 'sh', '-c', 'echo $$; exec sleep 600'])
    const pid = Number((await running.printed(/(\d+)\n/))[1])
    running.process.kill('SIGSTOP')
    expect((await here.run(['run', 'a', '--wait', '10m', '--', 'true'])).code).toBe(0)
    expect(alive(pid)).toBe(true) // no process could end it meanwhile: its writes need the token
    running.process.kill('SIGCONT')
    const { code, stderr } = await running.finished
    expect(code).toBe(79)
    expect(stderr).toMatch(/stood still for/)
    expect(alive(pid)).toBe(false)
  })

  test('the command is ended when the data file is removed', async () => {
    await using here = new Place()
    const running = here.start(['run', 'a', '--ttl', '2s', '--', 'sh', '-c', 'echo up; exec sleep 600'])
    await running.printed(/up/)
    rmSync(here.file('leasehold'), { recursive: true })
    expect((await running.finished).code).toBe(79)
  })
})

describe('when leasehold itself is killed', () => {
  test('its command is ended and its lease lapses', async () => {
    await using here = new Place()
    const running = here.start(['run', 'a', '--ttl', '4s', '--grace', '1s', '--', 'sh', '-c', STUBBORN])
    const outer = Number((await running.printed(/outer (\d+)/))[1])
    const inner = Number((await running.printed(/inner (\d+)/))[1])
    running.process.kill('SIGKILL')
    await eventually('the command and its child have ended', () => !alive(outer) && !alive(inner))
    expect((await here.run(['run', 'a', '--wait', '10m', '--', 'true'])).code).toBe(0)
    expect(await here.json('history', 'a')).toMatchObject([{ cause: 'lapsed' }, { cause: 'released' }])
  })

  test('its command is ended even if the kill comes before the guardian knows its target', async () => {
    await using here = new Place()
    // The same steps as `run`, up to that moment.
    const starter = `
      import { spawn } from 'node:child_process'
      import { Guardian } from ${JSON.stringify(fileURLToPath(new URL('../../../dist/cli/process/guardian.js', import.meta.url)))}
      new Guardian({ kill: true, grace: 1_000, mark: 'LEASEHOLD_RUN=moment' })
      const env = { ...process.env, LEASEHOLD_RUN: process.argv[1] }
      spawn('sh', ['-c', process.argv[2]], { stdio: 'inherit', detached: true, env })
      process.kill(process.pid, 'SIGKILL')`
    const start = (run: string) => here.spawn(process.execPath, ['--input-type=module', '--eval', starter, run, STUBBORN])
    const [guarded, other] = [start('moment'), start('another')]
    const others = [Number((await other.printed(/outer (\d+)/))[1]), Number((await other.printed(/inner (\d+)/))[1])]
    await guarded.finished // and all that could write for it: whether it came to say its numbers or not
    expect(others.map(alive)).toEqual([true, true])
    process.kill(-others[0]!, 'SIGKILL')
  })

  test('the guardian does not wait for a command that has ended within the grace', async () => {
    await using here = new Place()
    const running = here.start(['run', 'a', '--grace', '5432s', '--', 'sh', '-c', 'echo $$; exec sleep 600'])
    const pid = Number((await running.printed(/(\d+)\n/))[1])
    running.process.kill('SIGKILL')
    await eventually('the command has ended', () => !alive(pid))
    // Its pid may belong to another process when the grace is over.
    await eventually(
      'its guardian has gone',
      () => !processesWith('leasehold-guardian').some(found => processesWith('5432').includes(found)),
    )
  })

  test('with --on-lost ignore the command keeps running, and a guardian exits when it is no longer needed', async () => {
    await using here = new Place()
    const running = here.start(['run', 'a', '--on-lost', 'ignore', '--', 'sh', '-c', 'echo $$; exec sleep 600'])
    const pid = Number((await running.printed(/(\d+)\n/))[1])
    running.process.kill('SIGKILL')
    await new Promise<void>(resolve => running.process.once('exit', () => resolve()))
    expect(alive(pid)).toBe(true)
    process.kill(pid, 'SIGKILL')
    const brief = here.start(['run', 'b', '--grace', '4321s', '--', 'sh', '-c', 'echo up; while [ ! -e done ]; do sleep 0.05; done'])
    await brief.printed(/up/)
    const guardians = () => processesWith('leasehold-guardian').filter(found => processesWith('4321').includes(found))
    await eventually('its guardian is there', () => guardians().length === 1)
    await here.spawn('touch', [here.file('done')]).finished
    await brief.finished
    await eventually('no guardian is left', () => guardians().length === 0)
  })
})
