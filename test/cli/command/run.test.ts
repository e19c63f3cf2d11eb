import { describe, expect, test } from 'vitest'
import { FileStore } from '../../../src/store/file/file.ts'
import { alive, eventually, Place } from '../../support/cli.ts'

describe('run', () => {
  test('it exits with the code of its command, or with 128 plus the signal that ended it', async () => {
    await using here = new Place()
    const scripts = ['exit 0', 'exit 7', 'exit 75', 'exit 255', 'kill -9 $$', 'kill -TERM $$']
    const ended = await Promise.all(scripts.map((script, i) => here.run(['run', `r/${i}`, '--', 'sh', '-c', script])))
    expect(ended.map(({ code }) => code)).toEqual([0, 7, 75, 255, 137, 143])
  })

  test('the exit code is 127 if the command is not found and 126 if it cannot be executed, and nothing stays held', async () => {
    await using here = new Place()
    const missing = await here.run(['run', 'a', '--', 'no-such-command'])
    expect(missing).toMatchObject({ code: 127, stdout: '', stderr: expect.stringMatching(/no-such-command: command not found[\s\S]*PATH/) })
    expect((await here.run(['run', 'a', '--', here.path])).code).toBe(126)
    expect(await here.json('ls')).toEqual([])
  })

  test('the command gets the resource, the lease, the token and the URL, and its stdin, arguments and quotes arrive unchanged', async () => {
    await using here = new Place()
    const script = 'cat; printf "%s|" "$@"; echo "$LEASEHOLD_RESOURCE $LEASEHOLD_LEASE $LEASEHOLD_TOKEN $LEASEHOLD_URL"'
    const { stdout, stderr, code } = await here.run(['run', 'jobs/a b', '--', 'sh', '-c', script, 'x', "it's", '$HOME', '--ttl', ''], {
      input: 'in\n',
    })
    expect({ stderr, code }).toEqual({ stderr: '', code: 0 })
    expect(stdout).toMatch(/^in\nit's\|\$HOME\|--ttl\|\|jobs\/a b \d+ \d+ file:/)
    expect(stdout.trimEnd().endsWith(here.url)).toBe(true)
  })

  test('two commands without any settings exclude each other, and the later one has the greater token', async () => {
    await using here = new Place()
    const script = 'echo begin $LEASEHOLD_TOKEN >>log; sleep 0.2; echo end >>log'
    const all = await Promise.all(Array.from({ length: 4 }, () => here.run(['run', 'a', '--', 'sh', '-c', script])))
    expect(all.map(({ code }) => code)).toEqual([0, 0, 0, 0])
    const { stdout } = await here.spawn('cat', [here.file('log')]).finished
    const lines = stdout.trim().split('\n')
    const tokens = lines.filter(line => line.startsWith('begin')).map(line => Number(line.split(' ')[1]))
    expect(lines.map(line => line.split(' ')[0])).toEqual(Array.from({ length: 8 }, (_, i) => (i % 2 === 0 ? 'begin' : 'end')))
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b))
  })

  test('if the resource is held or the wait is over, the exit code is 75, the one of -E, or 0 with --skip-ok', async () => {
    await using here = new Place()
    const holder = here.start(['run', 'a', '--holder', 'first', '--', 'sh', '-c', 'echo up; exec sleep 600'])
    await holder.printed(/up/)
    const asked = await Promise.all([
      here.run(['run', 'a', '--no-wait', '--', 'echo', 'no']),
      here.run(['run', 'a', '--wait', '300ms', '--', 'echo', 'no']),
      here.run(['run', 'a', '--no-wait', '-E', '9', '--', 'echo', 'no']),
      here.run(['run', 'a', '--wait', '300ms', '--skip-ok', '--', 'echo', 'no']),
      here.run(['run', 'a', '--no-wait', '--json', '--', 'echo', 'no']),
    ])
    expect(asked.map(({ code }) => code)).toEqual([75, 75, 9, 0, 75])
    expect(asked.map(({ stdout }) => stdout)).toEqual(['', '', '', '', ''])
    expect(asked[0]!.stderr).toMatch(/a has been held by first for [\d.]+ m?s[\s\S]*nothing was run[\s\S]*leasehold explain a/i)
    expect(JSON.parse(asked[4]!.stderr)).toMatchObject({ error: { code: 'HELD', holder: 'first', resource: 'a' } })
    holder.process.kill('SIGTERM')
    expect((await holder.finished).code).toBe(143)
    expect(await here.json('ls')).toEqual([])
  })

  test('what is covered names the claim that covers it', async () => {
    await using here = new Place()
    const holder = here.start(['run', 'lib', '--covers', '--holder', 'first', '--', 'sh', '-c', 'echo up; exec sleep 600'])
    await holder.printed(/up/)
    const refused = await here.run(['run', 'lib/c.ts', '--no-wait', '--', 'true'])
    expect(refused).toMatchObject({ code: 75, stderr: expect.stringMatching(/lib\/c\.ts has been held by first through lib for/) })
    holder.process.kill('SIGTERM')
    await holder.finished
  })

  test('of several names it holds all at once, or none, and the command gets the token of each', async () => {
    await using here = new Place()
    const { stdout } = await here.run(['run', 'x/a', 'x b', '--', 'sh', '-c', 'echo "$LEASEHOLD_RESOURCE $LEASEHOLD_TOKENS"'])
    const [, first, tokens] = /^(x\/a) (\{.*\})\n$/.exec(stdout)!
    expect([first, Object.keys(JSON.parse(tokens!))]).toEqual(['x/a', ['x/a', 'x b']])
    const holder = here.start(['run', 'x b', '--holder', 'first', '--', 'sh', '-c', 'echo up; read line'], {})
    await holder.printed(/up/)
    const refused = await here.run(['run', 'x/a', 'x b', '--no-wait', '--', 'true'])
    expect(refused).toMatchObject({ code: 75, stderr: expect.stringMatching(/x b has been held by first for/) })
    // Without a terminal, the wait begins with one line.
    const waiting = here.start(['run', 'x/a', 'x b', '--', 'echo', 'mine'])
    await waiting.printed(/leasehold: waiting for x b: it has been held by first for .*, you are next\n/)
    expect(JSON.stringify(await here.json('ls', 'x'))).not.toContain('"grants":[{"resource":"x/a"')
    holder.process.kill('SIGTERM')
    expect(await waiting.finished).toMatchObject({ code: 0, stdout: 'mine\n' })
    expect((await here.run(['run', 'a', 'b', '--slots', '0-9', '--', 'true'])).code).toBe(64)
    expect(await here.run(['run', '--', 'true'])).toMatchObject({
      code: 64,
      stderr: expect.stringMatching(/no resource was named[\s\S]*run NAME --/),
    })
  })

  test('--min-ttl and --max-ttl make the ttl a preference that is adjusted to what policies allow', async () => {
    await using here = new Place()
    await here.json('policy', 'set', 'jobs', 'ttlMin=5s', 'ttlMax=20s')
    const refused = await here.run(['run', 'jobs/a', '--ttl', '1m', '--', 'true'])
    expect([refused.code === 0, refused.stdout]).toEqual([false, ''])
    const running = here.start(['run', 'jobs/a', '--ttl', '1m', '--min-ttl', '1s', '--', 'sh', '-c', 'echo up; exec sleep 600'])
    await running.printed(/up/)
    const [{ grants }] = (await here.json('ls')) as [{ grants: [{ remaining: number }] }]
    expect(grants[0].remaining).toBeLessThanOrEqual(20_000)
    running.process.kill('SIGTERM')
    await running.finished
    // Without --ttl, the preferred ttl follows the limits.
    expect((await here.run(['run', 'jobs/a', '--max-ttl', '9s', '--', 'true'])).code).toBe(0)
    const none = await here.run(['run', 'jobs/a', '--min-ttl', '30s', '--', 'true'])
    expect(none).toMatchObject({
      stdout: '',
      stderr: expect.stringMatching(/no ttl fits: at least 30000 ms.*5000 to 20000 ms for jobs\/a/),
    })
    for (const words of [
      ['--ttl', '5s', '--min-ttl', '9s'],
      ['--min-ttl', '9s', '--max-ttl', '5s'],
      ['--ttl', 'auto', '--min-ttl', '9s'],
    ])
      expect((await here.answer(['run', 'jobs/a', ...words, '--', 'true'])).code).toBe(64)
  })

  test('--max-time ends the command with 124, and the lease is released', async () => {
    await using here = new Place()
    const ended = await here.run(['run', 'a', '--max-time', '700ms', '--', 'sleep', '600'])
    expect(ended).toMatchObject({ code: 124, stderr: expect.stringMatching(/has run for 700 ms \(--max-time\)/) })
    expect(await here.json('ls')).toEqual([])
    expect((await here.run(['run', 'a', '--max-time', '1h', '--', 'sh', '-c', 'exit 5'])).code).toBe(5)
  })

  test('shared commands run together; units are counted against the capacity', async () => {
    await using here = new Place()
    await here.json('policy', 'set', 'pool', 'capacity=3')
    const up = ['--', 'sh', '-c', 'echo up; exec sleep 600']
    const shared = [here.start(['run', 's', '--shared', ...up]), here.start(['run', 's', '--shared', ...up])]
    const units = here.start(['run', 'pool/a', '--units', '2', ...up])
    await Promise.all([...shared, units].map(running => running.printed(/up/)))
    expect((await here.run(['run', 's', '--no-wait', '--', 'true'])).code).toBe(75)
    expect((await here.run(['run', 'pool/a', '--units', '2', '--no-wait', '--', 'true'])).code).toBe(75)
    expect((await here.run(['run', 'pool/a', '--no-wait', '--', 'true'])).code).toBe(0)
  })

  test('with --slots every command gets a number of its own, and the same holder the same number again', async () => {
    await using here = new Place()
    const script = 'echo "up $LEASEHOLD_SLOT $LEASEHOLD_RESOURCE"; exec sleep 600'
    const start = (holder: string) => here.start(['run', 'worker', '--slots', '10-12', '--holder', holder, '--', 'sh', '-c', script])
    const running = ['a', 'b', 'c'].map(start)
    const shown = await Promise.all(running.map(one => one.printed(/up (\d+) worker\/\1\n/)))
    const numbers = shown.map(([, number]) => number)
    expect((await here.run(['run', 'worker', '--slots', '10-12', '--no-wait', '--', 'true'])).code).toBe(75)
    expect([...numbers].sort()).toEqual(['10', '11', '12'])
    running[1]!.process.kill('SIGTERM')
    await running[1]!.finished
    const again = start('b')
    expect((await again.printed(/up (\d+)/))[1]).toBe(numbers[1])
    const wrong = await Promise.all(
      ['5', '9-0', '-1-3', 'a-b', '0-70000'].map(range => here.answer(['run', 'x', '--slots', range, '--', 'true'])),
    )
    expect(wrong.map(({ code }) => code)).toEqual([64, 64, 64, 64, 64])
    expect((await here.answer(['run', 'x', '--slots', '0-3', '--shared', '--', 'true'])).code).toBe(64)
  })

  test('the exit code is 69 for an unreachable server, 78 for a bad setting and 64 for a mistyped command, each with what to do next', async () => {
    await using here = new Place()
    await using owner = new FileStore({ path: here.file('owned.db'), own: { name: 'a test' } })
    await owner.open()
    const owned = await here.run(['run', 'a', '--store', `file:${here.file('owned.db')}`, '--', 'true'])
    expect(owned).toMatchObject({ code: 69, stderr: expect.stringMatching(/owned by a test[\s\S]*stop it first/) })
    const cases: [number, string[], Record<string, string>?][] = [
      [64, ['run', 'a']],
      [64, ['run', 'a', '--ttl', '5', '--', 'true']],
      [64, ['run', 'a', '--grace', 'x', '--', 'true']],
      [64, ['run', 'a', '--on-lost', 'x', '--', 'true']],
      [64, ['run', 'a', '-E', '256', '--', 'true']],
      [64, ['run', '../a', '--', 'true']],
      [64, ['run', 'a', 'ls', '-l']],
      [64, ['run', 'a', '--store', 'ftp://x', '--', 'true']],
      [64, ['no-such-thing']],
      [78, ['run', 'a', '--', 'true'], { LEASEHOLD_URL: 'ftp://x' }],
      [78, ['run', 'a', '--config', '/no/such/file', '--', 'true']],
    ]
    const ended = await Promise.all(cases.map(([, args, env]) => here.answer(args, env)))
    expect(ended.map(({ code }) => code)).toEqual(cases.map(([code]) => code))
    for (const { stdout, stderr } of ended) {
      expect(stdout).toBe('')
      expect(stderr.trimEnd().split('\n').length).toBeGreaterThanOrEqual(3)
    }
    expect((await here.answer(['rnu', 'a', '--', 'true'])).stderr).toMatch(/^leasehold: there is no command rnu\. Did you mean run\?\n/)
  })
})

describe('signals', () => {
  test('each signal reaches the command exactly once', async () => {
    await using here = new Place()
    const names = ['INT', 'TERM', 'HUP', 'QUIT', 'USR1', 'USR2', 'WINCH'] as const
    const traps = names.map(name => `trap 'echo got ${name}' ${name}`).join('; ')
    const running = here.start(['run', 'a', '--', 'sh', '-c', `${traps}; echo up; while [ ! -e stop ]; do sleep 0.05; done; exit 3`])
    await running.printed(/up/)
    for (const name of names) {
      running.process.kill(`SIG${name}`)
      await running.printed(new RegExp(`got ${name}\\b`))
    }
    await here.spawn('touch', [here.file('stop')]).finished
    const { code, stdout } = await running.finished
    expect(code).toBe(3)
    for (const name of names) expect(stdout.match(new RegExp(`got ${name}\\b`, 'g'))).toHaveLength(1)
  })

  test('signals that end programs reach all descendants of the command', async () => {
    await using here = new Place()
    const running = here.start(['run', 'a', '--', 'sh', '-c', 'sleep 987 & echo $!; wait'])
    const pid = Number((await running.printed(/(\d+)\n/))[1])
    running.process.kill('SIGTERM')
    expect((await running.finished).code).toBe(143)
    await eventually('the sleeper has ended', () => !alive(pid))
  })

  test('a signal during the wait ends it with 128 plus its number, and no waiter stays in the queue', async () => {
    await using here = new Place()
    const holder = here.start(['run', 'a', '--', 'sh', '-c', 'echo up; exec sleep 600'])
    await holder.printed(/up/)
    for (const [name, code] of [
      ['SIGINT', 130],
      ['SIGTERM', 143],
    ] as const) {
      const waiter = here.start(['run', 'a', '--json', '--', 'true'])
      await waiter.printed(/waiting/)
      waiter.process.kill(name)
      expect(await waiter.finished).toMatchObject({ code, stdout: '' })
    }
    expect(await here.json('ls')).toMatchObject([{ resource: 'a', queue: [] }])
  })
})
