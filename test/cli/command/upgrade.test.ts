/** `leasehold upgrade`, and the rules that a server raises: on a log that begins with rules of version 0, which no build has written. */
import { describe, expect, test } from 'vitest'
import { RULE_CHANGES } from '../../../src/cli/rule-changes.ts'
import { systemClock } from '../../../src/clock.ts'
import { countUser, usersOf } from '../../../src/connect/store-users.ts'
import { encodeBatch } from '../../../src/kernel/codec/batch.ts'
import { RULES } from '../../../src/kernel/state.ts'
import { FileStore } from '../../../src/store/file/file.ts'
import { START } from '../../../src/store.ts'
import { Place } from '../../support/cli.ts'
import { eventually } from '../../support/eventually.ts'

/** A place with a log whose rules are those of version 0. */
async function earlier(): Promise<Place & { readonly store: string }> {
  const place = new Place()
  const path = place.file('leases.db')
  await using store = new FileStore({ path })
  await store.open()
  const proposals = [{ command: { kind: 'policy', prefix: 'p', rules: { capacity: 2 } } as const }]
  const bytes = encodeBatch({ proposer: 9, seq: 1, applied: 0, decisionHash: [0, 0], wall: 1_700_000_000_000, rules: 0, proposals })
  await store.append(bytes, START)
  return Object.assign(place, { store: `file:${path}` })
}

async function rulesOf(place: Place & { readonly store: string }): Promise<unknown> {
  return (await place.json('upgrade', '--store', place.store))[0]!.rules
}

test('every version of the rules says what it changed', () => {
  expect(Object.keys(RULE_CHANGES).map(Number)).toEqual(Array.from({ length: RULES }, (_, i) => i + 1))
})

test('it says what will change and changes nothing, and raises the rules with --yes', async () => {
  await using place = await earlier()
  const { code, stdout, stderr } = await place.run(['upgrade', '--store', place.store])
  expect([code, stdout, stderr]).toEqual([
    0,
    expect.stringMatching(new RegExp(`by rules version 0\\. This program, \\d.*, knows version ${RULES}\\.\\nVersion 1 brings: `)),
    expect.stringContaining('nothing was changed. To raise the rules: leasehold upgrade --yes'),
  ])
  expect(await rulesOf(place)).toBe(0)
  const raised = await place.run(['upgrade', '--yes', '--store', place.store])
  expect([raised.code, raised.stderr]).toEqual([0, expect.stringContaining(`the rules of the log are now version ${RULES}`)])
  expect(await rulesOf(place)).toBe(RULES)
  expect((await place.run(['upgrade', '--yes', '--store', place.store])).stderr).toContain('there is nothing to raise')
})

test('it lists what is attached, and does not raise the rules over a process that does not know them, except by force', async () => {
  await using place = await earlier()
  const leave = new AbortController()
  const announced = async (count: number) => eventually(async () => expect((await usersOf(place.store, systemClock))?.count).toBe(count))
  countUser(place.store, { clock: systemClock, signal: leave.signal, rules: 0, server: true })
  await announced(1)
  const [listed] = await place.json('upgrade', '--store', place.store)
  expect(listed).toMatchObject({
    rules: 0,
    known: RULES,
    processes: [{ kind: 'server', rules: 0, name: expect.stringMatching(`:${process.pid}$`) }],
  })
  const refused = await place.run(['upgrade', '--yes', '--store', place.store])
  expect([refused.code, refused.stdout]).toEqual([1, expect.stringMatching(/KIND +PROCESS +VERSION +RULES\n.*server +\S+:\d+ +\d\S+ +0/s)])
  expect(refused.stderr).toMatch(/the rules were not raised\. These would stop: .*:\d+/)
  expect(await rulesOf(place)).toBe(0)
  expect((await place.run(['upgrade', '--force', '--store', place.store])).code).toBe(0)
  expect(await rulesOf(place)).toBe(RULES)
  leave.abort()
  await announced(0)
})

test('a server raises the rules of its own file with a line in its log, and not with --hold-rules', async () => {
  await using place = await earlier()
  const serve = async (...more: string[]) => {
    const server = place.start(['serve', '--port', '0', '--log-format', 'json', '--store', place.store, ...more])
    await server.printed(/http:\/\/127/)
    server.process.kill('SIGTERM')
    const { stderr } = await server.finished
    return stderr
      .split('\n')
      .filter(line => line.includes('"from"'))
      .map(line => JSON.parse(line) as Record<string, unknown>)
  }
  expect(await serve('--hold-rules')).toEqual([])
  expect(await rulesOf(place)).toBe(0)
  expect(await serve()).toMatchObject([
    { level: 'warn', rules: RULES, from: 0, msg: expect.stringContaining('were raised from version 0') },
  ])
  expect(await rulesOf(place)).toBe(RULES)
  expect(await serve()).toEqual([])
})

describe.each(['http', 'leasehold'])('by the address of a server, %s://', scheme => {
  test('it says who owns the log, changes nothing without --yes, and raises the rules with it', async () => {
    await using place = await earlier()
    const server = place.start(['serve', '--port', '0', '--store', place.store, '--hold-rules'])
    const [, address] = await server.printed(/http:\/\/(127\.0\.0\.1:\d+)/)
    const url = `${scheme}://${address}`
    const shown = await place.run(['upgrade', '--store', url])
    expect(shown).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(
        new RegExp(`by rules version 0\\. This program, \\d.*, knows version ${RULES}\\.\\nVersion 1 brings: `),
      ),
      stderr: expect.stringMatching(/one server owns this log[\s\S]*nothing was changed\. To raise the rules: leasehold upgrade --yes/),
    })
    expect(await place.json('upgrade', '--store', url)).toMatchObject([{ rules: 0, known: RULES }])
    const raised = await place.run(['upgrade', '--yes', '--store', url])
    expect([raised.code, raised.stderr]).toEqual([0, expect.stringContaining(`the rules of the log are now version ${RULES}`)])
    expect(await place.json('upgrade', '--store', url)).toMatchObject([{ rules: RULES, changes: [] }])
    expect((await place.run(['upgrade', '--yes', '--store', url])).stderr).toContain('there is nothing to raise')
    server.process.kill('SIGTERM')
    await server.finished
    expect(await rulesOf(place)).toBe(RULES)
  })

  test('a key that does not administer the store may not raise the rules', async () => {
    await using place = await earlier()
    const create = async (...options: string[]) => (await place.run(['key', 'create', ...options, '--store', place.store])).stdout.trim()
    await create('--name', 'ops', '--allow', 'admin')
    const ann = await create('--name', 'ann', '--allow', 'acquire,read:jobs')
    const server = place.start(['serve', '--port', '0', '--store', place.store, '--hold-rules'])
    const [, address] = await server.printed(/http:\/\/(127\.0\.0\.1:\d+)/)
    const refused = await place.run(['upgrade', '--yes', '--store', `${scheme}://${address}`], { env: { LEASEHOLD_API_KEY: ann } })
    expect(refused.code).toBe(77)
    server.process.kill('SIGTERM')
    await server.finished
    expect(await rulesOf(place)).toBe(0)
  })
})
