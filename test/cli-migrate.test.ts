import { expect, test } from 'vitest'
import { eventually, Place } from './cli.ts'

interface Shown {
  readonly grants: readonly { readonly lease: number; readonly token: number; readonly remaining: number }[]
}

test('leases move to another file while a command runs under one: it goes on, tokens grow, the old file leads to the new one', {
  timeout: 60_000,
}, async () => {
  await using here = new Place()
  const [from, to] = [`file:${here.file('from.db')}`, `file:${here.file('to.db')}`]
  const holder = here.start(['run', 'job', '--store', from, '--ttl', '9s', '--', 'sh', '-c', 'echo up; read line; echo done'])
  await holder.printed(/up/)
  const [held] = await here.json('show', 'job', '--store', from)
  const { lease, token } = (held as unknown as Shown).grants[0]!
  const [moved] = await here.json('migrate', from, to)
  expect(moved).toMatchObject({ leases: 1, to })
  // What is left of its term grows: it renews there.
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

test('a move into a store that holds leases is refused, and everything stays as it was', { timeout: 60_000 }, async () => {
  await using here = new Place()
  const [from, to] = [`file:${here.file('from.db')}`, `file:${here.file('to.db')}`]
  await here.run(['policy', 'set', 'x', 'capacity=2', '--store', to])
  const refused = await here.run(['migrate', from, to])
  expect(refused.code).not.toBe(0)
  expect(refused.stderr).toMatch(/name an empty one/)
  expect((await here.run(['run', 'job', '--store', from, '--', 'true'])).code).toBe(0)
})

test('a move that was broken off can be called off', { timeout: 60_000 }, async () => {
  await using here = new Place()
  const from = `file:${here.file('from.db')}`
  expect((await here.run(['migrate', from, '--cancel'])).stderr).toMatch(/nothing has left/)
  expect((await here.run(['migrate', from])).stderr).toMatch(/--cancel/)
})
