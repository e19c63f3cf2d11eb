import { expect, test } from 'vitest'
import { eventually, Place } from '../../support/cli.ts'

test('a service is listed while its command runs, drains when it is asked to stop, and is removed when the command has ended', async () => {
  await using here = new Place()
  const script = 'trap "echo stopping; exit 7" TERM; echo up; while :; do sleep 0.05; done'
  const words = [
    'register',
    'planner',
    '--address',
    'http://10.0.0.7:8080',
    '--instance',
    'a',
    '--capability',
    'plan',
    '--metadata',
    '{"x":1}',
  ]
  const agent = here.start([...words, '--drain', '5s', '--', 'sh', '-c', script])
  await agent.printed(/up/)
  expect(await here.json('discover', '--capability', 'plan')).toMatchObject([
    { service: 'planner', instance: 'a', address: 'http://10.0.0.7:8080', status: 'passing', metadata: { x: 1 } },
  ])
  expect(await here.answer(['discover', 'planner', '--pick'])).toMatchObject({ code: 0, stdout: 'http://10.0.0.7:8080\n' })
  agent.process.kill('SIGTERM')
  await eventually('it drains', async () => (await here.json('discover', 'planner', '--status', 'draining')).length === 1)
  expect((await agent.finished).code).toBe(7)
  expect(agent.stdout()).toContain('stopping')
  expect(agent.stderr()).not.toMatch(/planner/) // its own leaving is no news
  expect(await here.json('discover')).toEqual([])
  expect((await here.answer(['discover', 'planner', '--pick'])).code).toBe(1)
})

test('a name that another holder has is refused with the name of that holder, and a command that is not found leaves nothing listed', async () => {
  await using here = new Place()
  const one = here.start([
    'register',
    'planner',
    '--address',
    'a:1',
    '--instance',
    'a',
    '--holder',
    'first',
    '--',
    'sh',
    '-c',
    'echo up; exec sleep 600',
  ])
  await one.printed(/up/)
  const two = await here.run(['register', 'planner', '--address', 'a:1', '--instance', 'a', '--holder', 'second', '--', 'true'])
  expect([two.code, two.stderr]).toEqual([75, expect.stringMatching(/first/)])
  expect((await here.run(['register', 'other', '--address', 'a:1', '--', 'no-such-command'])).code).toBe(127)
  expect(await here.json('discover', 'other')).toEqual([])
  expect((await here.run(['register', 'planner', '--', 'true'])).code).toBe(64)
})

test('the command gets the lease of its registration, and no token or resource of a lease around it', async () => {
  await using here = new Place()
  const script = 'echo "$LEASEHOLD_SERVICE [$LEASEHOLD_TOKEN] [$LEASEHOLD_RESOURCE] $LEASEHOLD_LEASE"'
  const env = { LEASEHOLD_TOKEN: '5', LEASEHOLD_RESOURCE: 'outer', LEASEHOLD_LEASE: '7' }
  const { stdout } = await here.run(['register', 's', '--address', 'a:1', '--', 'sh', '-c', script], { env })
  expect(stdout).toMatch(/^s \[\] \[\] \d{8,}\n$/)
  const bad = await here.run(['register', 's', '--address', 'a:1', '--metadata', '{', '--', 'true'])
  expect([bad.code, bad.stderr]).toEqual([64, expect.not.stringMatching(/exit code/i)])
})

test('register reports that no server makes its health check, or how many servers do', async () => {
  await using here = new Place()
  const words = ['register', 'planner', '--address', 'tcp://127.0.0.1:9', '--check', 'tcp://127.0.0.1:9', '--instance']
  const alone = here.start([...words, 'a', '--', 'sh', '-c', 'echo up; exec sleep 600'])
  await alone.printed(/up/)
  await eventually('the missing check is reported', async () => /planner: unchecked: no server makes health checks/.test(alone.stderr()))
  expect(await here.json('discover', 'planner')).toMatchObject([{ instance: 'a', status: 'unknown', reason: 'not checked yet' }])
  expect((await here.answer(['discover', 'planner', '--pick'])).code, 'and it is not picked').toBe(1)
  alone.process.kill('SIGTERM')
  await alone.finished
  const server = here.start(['serve', '--listen', '127.0.0.1:0', '--check-allow', '127.0.0.1:*'])
  await server.printed(/health checks of/)
  await eventually('it makes checks', async () => (await here.json('ls', 'leasehold/checks')).length > 0)
  const checked = here.start([...words, 'b', '--', 'sh', '-c', 'echo up; exec sleep 600'])
  await checked.printed(/up/)
  expect(checked.stderr()).toMatch(/planner: 1 server makes health checks/)
  expect(checked.stderr()).not.toMatch(/unchecked/)
  await eventually('it is found dead', async () => (await here.json('discover', 'planner', '--status', 'critical')).length === 1)
})

test('a server answers DNS and heartbeat datagrams at the given addresses, and refuses public DNS without --dns-public', async () => {
  await using here = new Place()
  const server = here.start([
    'serve',
    '--listen',
    '127.0.0.1:0',
    '--dns',
    '127.0.0.1:0',
    '--udp',
    '127.0.0.1:0',
    '--check-allow',
    '127.0.0.1:*',
  ])
  await server.printed(/health checks of 127\.0\.0\.1/)
  expect(server.stderr()).toMatch(/names under leasehold on 127\.0\.0\.1:\d+ \(DNS\)[\s\S]*heartbeats on 127\.0\.0\.1:\d+ \(UDP\)/)
  server.process.kill('SIGTERM')
  expect((await server.finished).code).toBe(0)
  const open = await here.run(['serve', '--listen', '127.0.0.1:0', '--dns', '0.0.0.0:0'])
  expect([open.code === 0, open.stderr]).toEqual([false, expect.stringMatching(/--dns-public/)])
  const rule = await here.run(['serve', '--listen', '127.0.0.1:0', '--check-allow', 'everything'])
  expect([rule.code === 0, rule.stderr]).toEqual([false, expect.stringMatching(/is not a rule for checks/)])
})
