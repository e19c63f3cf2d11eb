import { relative } from 'node:path'
import { expect, test } from 'vitest'
import { openInPlace } from '../../../src/connect/connect.ts'
import { storeOf } from '../../../src/connect/store-of.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { moveLeases } from '../../../src/replica/move-leases.ts'
import type { Replica } from '../../../src/replica/replica.ts'
import { broken, killedAtTheEnd } from '../../support/broken-store.ts'
import { eventually, Place } from '../../support/cli.ts'
import { intercept } from '../../support/submitting.ts'

interface Shown {
  readonly grants: readonly { readonly lease: number; readonly token: number; readonly remaining: number }[]
}

test('leases move to another file while a command runs under one: the command keeps running, tokens grow, and the old file refers to the new one', async () => {
  await using here = new Place()
  const [from, to] = [`file:${here.file('from.db')}`, `file:${here.file('to.db')}`]
  const holder = here.start(['run', 'job', '--store', from, '--ttl', '20s', '--', 'sh', '-c', 'echo up; read line; echo done'])
  await holder.printed(/up/)
  const [held] = await here.json('show', 'job', '--store', from)
  const { lease, token } = (held as unknown as Shown).grants[0]!
  const [moved] = await here.json('migrate', from, to)
  expect(moved).toMatchObject({ leases: 1, to })
  // The remaining time grows: the command renews in the new store.
  const lefts: number[] = []
  await eventually('a renewal in the new store', async () => {
    const [seen] = await here.json('show', 'job', '--store', to)
    const [grant] = (seen as unknown as Shown).grants
    expect(grant).toMatchObject({ lease, token })
    lefts.push(grant!.remaining)
    return lefts.some((left, i) => i > 0 && left > lefts[i - 1]!)
  })
  expect((await here.run(['run', 'job', '--store', from, '--no-wait', '--', 'true'])).code).toBe(75)
  holder.process.stdin!.end('\n')
  expect(await holder.finished).toMatchObject({ code: 0, stdout: 'up\ndone\n' })
  const next = await here.run(['run', 'job', '--store', from, '--', 'sh', '-c', 'echo $LEASEHOLD_TOKEN'])
  expect(Number(next.stdout)).toBeGreaterThan(token)
  expect(await here.json('ls', '--store', to)).toEqual([])
})

test('a move into a store that holds leases is refused, and nothing changes', async () => {
  await using here = new Place()
  const [from, to] = [`file:${here.file('from.db')}`, `file:${here.file('to.db')}`]
  await here.answer(['policy', 'set', 'x', 'capacity=2', '--store', to])
  const refused = await here.run(['migrate', from, to])
  expect(refused.code).not.toBe(0)
  expect(refused.stderr).toMatch(/name an empty one/)
  expect((await here.run(['run', 'job', '--store', from, '--', 'true'])).code).toBe(0)
})

test('a move that was interrupted can be cancelled', async () => {
  await using here = new Place()
  const from = `file:${here.file('from.db')}`
  expect((await here.run(['migrate', from, '--cancel'])).stderr).toMatch(/no move of this log is under way/)
  expect((await here.run(['migrate', from])).stderr).toMatch(/--cancel/)
})

test('a completed move can neither be repeated nor cancelled, and the old store refers to the new one and grants nothing', async () => {
  await using here = new Place()
  const [from, to] = [`file:${here.file('from.db')}`, `file:${here.file('to.db')}`]
  await here.json('migrate', from, to)
  const holder = here.start(['run', 'job', '--store', from, '--ttl', '60s', '--', 'sh', '-c', 'echo up; read line'])
  await holder.printed(/up/) // it was led to the new store
  for (const where of [to, `${to}-elsewhere`, '--cancel']) {
    const refused = await here.run(['migrate', from, where])
    expect([refused.code === 0, refused.stderr.includes(`have moved to ${to}`)]).toEqual([false, true])
  }
  expect((await here.run(['run', 'job', '--store', from, '--no-wait', '--', 'true'])).code).toBe(75)
  const [held] = await here.json('show', 'job', '--store', to)
  expect((held as unknown as Shown).grants).toHaveLength(1)
  holder.process.stdin!.end('\n')
  await holder.finished
})

test('the same command completes a move that was interrupted after the leases had left', async () => {
  await using here = new Place()
  const [from, to] = [`file:${here.file('from.db')}`, `file:${here.file('to.db')}`]
  {
    await using old = (await openInPlace(from)) as Replica
    await propose(old, { kind: 'acquire', holder: 'ann', ttl: 600_000, wants: [{ resource: 'job' }] })
    const killed = async () => killedAtTheEnd(await storeOf(to))
    await expect(moveLeases(old, { place: to, open: killed })).rejects.toThrow('killed')
  }
  const called = await here.run(['migrate', from, '--cancel'])
  expect([called.code === 0, called.stderr.includes(`have moved to ${to}`)]).toEqual([false, true])
  expect((await here.run(['migrate', from, to])).stderr).toMatch(/had already left for .* The move is complete now/)
  expect((await here.run(['run', 'job', '--store', from, '--no-wait', '--', 'true'])).code).toBe(75)
  expect((await here.run(['run', 'free', '--store', from, '--no-wait', '--', 'true'])).code).toBe(0)
})

test('if the server that owns the old file dies while the leases are copied, the move fails at once, and they stay', async () => {
  await using here = new Place()
  const [from, to] = [`file:${here.file('from.db')}`, `file:${here.file('to.db')}`]
  const server = here.start(['serve', '--store', from, '--listen', '127.0.0.1:0'])
  await server.printed(/http:\/\//)
  await using old = await openInPlace(from)
  const open = async () => {
    const store = await storeOf(to)
    return broken(store, {
      async snapshot(at, bytes) {
        server.process.kill('SIGKILL')
        await server.finished
        return store.snapshot(at, bytes)
      },
    })
  }
  await expect(moveLeases(old, { place: to, open })).rejects.toMatchObject({ code: 'UNAVAILABLE', facts: { move: 'called-off' } })
  expect((await here.run(['run', 'job', '--store', from, '--no-wait', '--', 'true'])).code).toBe(0)
})

test('if it dies when it decides nothing any more, the move fails at once, and is cancelled on the file', async () => {
  await using here = new Place()
  const [from, to] = [`file:${here.file('from.db')}`, `file:${here.file('to.db')}`]
  const server = here.start(['serve', '--store', from, '--listen', '127.0.0.1:0'])
  await server.printed(/http:\/\//)
  await using old = await openInPlace(from)
  intercept(old, async (ask, command, options) => {
    if (command.kind !== 'move' || command.since === undefined) return ask(command, options)
    server.process.kill('SIGKILL')
    await server.finished
    return ask(command, options)
  })
  await expect(moveLeases(old, { place: to, open: () => storeOf(to) })).rejects.toMatchObject({
    code: expect.stringMatching(/UNAVAILABLE|UNKNOWN/),
    facts: { move: 'not-complete' },
    message: expect.stringMatching(/cancel it/),
  })
  const waited = await here.run(['run', 'job', '--store', from, '--wait', '1s', '--', 'true'])
  expect([waited.code === 0, /being moved/.test(waited.stderr)]).toEqual([false, true])
  expect((await here.run(['migrate', from, '--cancel'])).code).toBe(0)
  expect((await here.run(['run', 'job', '--store', from, '--no-wait', '--', 'true'])).code).toBe(0)
})

test('a move that may cost leases with a short ttl says so, and needs --yes', async () => {
  await using here = new Place()
  const [from, to] = [`file:${here.file('from.db')}`, `file:${here.file('to.db')}`]
  const holder = here.start(['run', 'short', '--store', from, '--ttl', '900ms', '--', 'sh', '-c', 'echo up; read line'])
  await holder.printed(/up/)
  const refused = await here.run(['migrate', from, to])
  expect(refused.code).toBe(1)
  expect(refused.stderr).toMatch(/leases with a ttl below .* may be lost: \d of the \d leases/)
  expect(refused.stderr).toMatch(/Nothing was changed.\s+To move them all the same, use --yes/)
  const [moved] = await here.json('migrate', from, to, '--yes')
  expect(moved).toMatchObject({ to, stopped: expect.any(Number) })
  holder.process.stdin!.end('\n')
  await holder.finished
})

test('a relative path is recorded as an absolute one, so that clients in other folders find the file', async () => {
  await using here = new Place()
  const from = `file:${here.file('from.db')}`
  expect((await here.run(['run', 'job', '--store', from, '--', 'true'])).code).toBe(0)
  const [moved] = await here.json('migrate', from, `file:${relative(here.path, here.file('to.db'))}`)
  expect(moved).toMatchObject({ to: `file:${here.file('to.db')}` })
})

test('migrate prints no password', async () => {
  await using here = new Place()
  const gone = 'redis://:s3cret@127.0.0.1:1'
  const asked = await Promise.all([
    here.run(['migrate', gone, `file:${here.file('to.db')}`, '--json']),
    here.run(['migrate', gone, '--cancel']),
    here.run(['migrate', `file:${here.file('from.db')}`, gone]),
  ])
  for (const { code, stdout, stderr } of asked) {
    expect(code).not.toBe(0)
    expect(stdout + stderr).not.toContain('s3cret')
  }
})

test('a server that is started on the old file afterwards serves the new store', async () => {
  await using here = new Place()
  const [from, to] = [`file:${here.file('from.db')}`, `file:${here.file('to.db')}`]
  const serve = () => here.start(['serve', '--store', from, '--listen', '127.0.0.1:0'])
  const first = serve()
  await first.printed(/http:\/\//)
  const [moved] = await here.json('migrate', from, to)
  expect(moved).toMatchObject({ to })
  await first.printed(/"store":"moved","to":"file:\S+to\.db".*which is served from now on/)
  first.process.kill('SIGTERM')
  await first.finished
  const second = serve()
  const [page] = await second.printed(/http:\/\/\S+/)
  expect(second.stderr()).toContain(`have moved to ${to}`)
  const granted = await fetch(`${page}v1/leases`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ resources: ['job'], holder: 'me', ttl: '60s' }),
  })
  expect(granted.status).toBe(201)
  // Commands that name either file find the server.
  for (const store of [from, to]) expect((await here.run(['run', 'job', '--store', store, '--no-wait', '--', 'true'])).code).toBe(75)
  second.process.kill('SIGTERM')
  expect((await second.finished).code).toBe(0)
})

test('a server whose leases have moved to a store that it cannot open names that store', async () => {
  await using here = new Place()
  const from = `file:${here.file('from.db')}`
  {
    await using old = await openInPlace(from)
    const { revision: since } = await propose(old, { kind: 'move' })
    await propose(old, { kind: 'move', to: 'redis://127.0.0.1:1', since })
  }
  const { code, stderr } = await here.run(['serve', '--store', from, '--listen', '127.0.0.1:0'])
  expect(code).toBe(69)
  expect(stderr).toContain('have moved to redis://127.0.0.1:1, which cannot be opened here')
})

test.each([
  ['that cannot be reached', 'redis://127.0.0.1:1'],
  ['whose driver is missing', 'mysql://127.0.0.1/x'],
])('a move to a store %s leaves the old log unchanged', async (_, to) => {
  await using here = new Place()
  const from = `file:${here.file('from.db')}`
  expect((await here.run(['run', 'job', '--store', from, '--', 'true'])).code).toBe(0)
  const revision = async () => {
    await using old = await openInPlace(from)
    return (await old.read({ kind: 'summary' }, { consistent: true })).revision
  }
  const before = await revision()
  const refused = await here.run(['migrate', from, to])
  expect(refused.code).not.toBe(0)
  expect(refused.stderr).toContain('Nothing was done.')
  expect(await revision()).toBe(before)
})
