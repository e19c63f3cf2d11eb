/** Only the operator may move leases to another store: a key that comes over the network must not choose a store for the server to open. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { open } from '../../src/connect/connect.ts'
import { propose } from '../../src/lessor/propose.ts'
import { world } from '../support/http-world.ts'

const folder = mkdtempSync(join(tmpdir(), 'leasehold-move-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const bearer = (secret: string) => ({ Authorization: `Bearer ${secret}` })
const OPERATOR = 'lh_operator'

test('an administrator key cannot move leases over either wire, and no store is opened', async () => {
  await using here = await world()
  const admin = await here.key('admin', [{ verb: 'admin', prefix: '' }])
  const to = `file:${join(folder, 'deep/stolen.db')}`
  const commands = [{ kind: 'move' }, { kind: 'move', to }, { kind: 'move', stay: true }] as const
  const { revision } = await here.lessor.read({ kind: 'summary' })
  const { json } = await here.ask('POST', '/v1/propose', { proposals: commands.map(command => ({ command })) }, bearer(admin))
  for (const { outcome } of json.answers) expect(outcome).toMatchObject({ kind: 'refused', code: 'FORBIDDEN' })
  await using far = await open(`leasehold://${admin}@127.0.0.1:${here.port}`)
  for (const command of commands) expect(await propose(far, command)).toMatchObject({ kind: 'refused', code: 'FORBIDDEN' })
  expect(await here.lessor.read({ kind: 'summary' })).toMatchObject({ revision, value: { quiet: false } })
  expect(existsSync(join(folder, 'deep'))).toBe(false)
  expect(here.audited.map(({ command, outcome }) => [command.kind, outcome?.kind])).toContainEqual(['move', 'refused'])
})

test('a caller without a key cannot move leases on a server without keys', async () => {
  await using here = await world()
  const { json } = await here.ask('POST', '/v1/propose', { proposals: [{ command: { kind: 'move' } }] })
  expect(json.answers[0].outcome).toMatchObject({ kind: 'refused', code: 'FORBIDDEN' })
  expect(json.answers[0].outcome.message).toContain('leasehold migrate')
})

test('the operator can move leases, and an administrator key can move them to a store that the configuration names', async () => {
  await using here = await world({ operator: OPERATOR, moveTo: ['postgres://db/new'] })
  const admin = await here.key('admin', [{ verb: 'admin', prefix: '' }])
  const propose = async (secret: string, command: object) =>
    (await here.ask('POST', '/v1/propose', { proposals: [{ command }] }, bearer(secret))).json.answers[0].outcome
  expect(await propose(OPERATOR, { kind: 'move' })).toMatchObject({ kind: 'done' })
  expect(await propose(OPERATOR, { kind: 'move', stay: true })).toMatchObject({ kind: 'done' })
  expect(await propose(admin, { kind: 'move' })).toMatchObject({ kind: 'done' })
  expect(await propose(admin, { kind: 'move', to: 'postgres://db/other' })).toMatchObject({ kind: 'refused', code: 'FORBIDDEN' })
  expect(await propose(admin, { kind: 'move', to: 'postgres://db/new' })).toMatchObject({ kind: 'done' })
})

test.each(['postgres://me:s3cret@db/x', 'redis://:s3cret@db', 'redis://:a@s3cret@db', 'postgres://db/x?user=me&password=s3cret'])(
  'a place with a password in it is refused, and the password is in no message: %s',
  async to => {
    await using here = await world({ operator: OPERATOR })
    const proposals = [{ command: { kind: 'move' } }, { command: { kind: 'move', to } }]
    const { json, text } = await here.ask('POST', '/v1/propose', { proposals }, bearer(OPERATOR))
    expect(json.answers[1].outcome).toMatchObject({ kind: 'refused', code: 'INVALID' })
    expect(text).not.toContain('s3cret')
  },
)
