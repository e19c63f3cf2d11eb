import { createServer } from 'node:net'
import { describe, expect, test } from 'vitest'
import { Place, type Running } from '../../support/cli.ts'

/** Accepts connections and never answers a request. */
async function silent(): Promise<AsyncDisposable & { readonly url: string; connected(): Promise<void> }> {
  let came = () => {}
  const server = createServer(socket => {
    socket.on('error', () => {})
    socket.on('data', () => came())
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  return {
    url: `leasehold://127.0.0.1:${port}`,
    connected: () => new Promise(resolve => (came = resolve)),
    [Symbol.asyncDispose]: async () => void server.close(),
  }
}

describe('before the connection is established', () => {
  for (const [words, name, code] of [
    [['run', 'j'], 'SIGTERM', 143],
    [['elect', 'j'], 'SIGINT', 130],
    [['register', 'j', '--address', 'a:1'], 'SIGHUP', 129],
    [['ls'], 'SIGTERM', 143],
  ] as const)
    test(`${name} ends ${words[0]} at once, and nothing is run`, async () => {
      await using here = new Place()
      await using mute = await silent()
      const connected = mute.connected()
      const running = here.start([...words, '--store', mute.url, ...(words[0] === 'ls' ? [] : ['--', 'echo', 'RAN'])])
      await connected
      running.process.kill(name)
      // Its opening would give up after a while, with another code and a message.
      expect(await running.finished).toMatchObject({ code, stdout: '', stderr: expect.not.stringMatching(/no server/) })
    })

  test('USR1 and USR2 neither open a debugger nor end leasehold', async () => {
    await using here = new Place()
    await using mute = await silent()
    const connected = mute.connected()
    const running = here.start(['run', 'j', '--store', mute.url, '--', 'echo', 'RAN'])
    await connected
    running.process.kill('SIGUSR1')
    running.process.kill('SIGUSR2')
    running.process.kill('SIGTERM')
    const { code, stdout, stderr } = await running.finished
    expect({ code, stdout }).toEqual({ code: 143, stdout: '' })
    expect(stderr).not.toMatch(/debugger/i)
  })
})

test('INT and TERM end a register that waits for a name, and its command is not run', async () => {
  await using here = new Place()
  const words = ['register', 's', '--address', 'a:1', '--instance', 'x']
  const holder = here.start([...words, '--', 'sh', '-c', 'echo up; exec sleep 600'])
  await holder.printed(/up/)
  for (const [name, code] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const) {
    const before = (await here.json('discover', 's')).length
    const waiter = here.start([...words, '--wait', '10m', '--holder', 'waiter', '--', 'echo', 'RAN'])
    await loaded(waiter)
    waiter.process.kill(name)
    expect(await waiter.finished).toMatchObject({ code, stdout: '' })
    expect((await here.json('discover', 's')).length).toBe(before)
  }
})

/** Waits until the data file is open: signals are handled by then. */
async function loaded({ pid }: Running): Promise<void> {
  const { readdirSync, readlinkSync } = await import('node:fs')
  const { eventually } = await import('../../support/cli.ts')
  await eventually('it has opened the file', () =>
    readdirSync(`/proc/${pid}/fd`).some(fd => {
      try {
        return readlinkSync(`/proc/${pid}/fd/${fd}`).endsWith('leasehold.db-owner')
      } catch {
        return false
      }
    }),
  )
}

describe('when a server is unreachable for longer than clients wait for an answer', () => {
  test('candidates and waiters keep their places, and --wait or a signal ends the wait', async () => {
    await using here = new Place()
    const serve = async (port: string) => {
      const server = here.start(['serve', '--store', `file:${here.file('s.db')}`, '--listen', `127.0.0.1:${port}`])
      return { server, port: (await server.printed(/http:\/\/127\.0\.0\.1:(\d+)\//))[1]! }
    }
    const { server, port } = await serve('0')
    const store = ['--store', `leasehold://127.0.0.1:${port}`]
    const office = ['--', 'sh', '-c', 'echo "in office $LEASEHOLD_TOKEN"; exec sleep 600']
    const leader = here.start(['elect', 'seat', '--ttl', '5s', ...store, ...office])
    await leader.printed(/in office/)
    const candidate = here.start(['elect', 'seat', '--ttl', '5s', '--json', ...store, ...office])
    await candidate.printed(/"waiting"/)
    server.process.kill('SIGKILL')
    await server.finished
    await leader.printed(/standing for election again/)
    const brief = await here.run(['run', 'other', '--no-wait', ...store, '--', 'echo', 'RAN'])
    expect(brief).toMatchObject({ code: 69, stdout: '' })
    await Promise.race([leader.printed(/still waiting for election\/seat/), candidate.printed(/still waiting for election\/seat/)])
    await serve(port)
    await Promise.race([leader.printed(/in office[\s\S]*in office/), candidate.printed(/in office/)])
    for (const each of [leader, candidate]) each.process.kill('SIGTERM')
    expect([(await leader.finished).code, (await candidate.finished).code]).toEqual([143, 143])
    expect(leader.stderr().match(/still waiting/g)?.length ?? 0).toBeLessThan(2)
  })
})
