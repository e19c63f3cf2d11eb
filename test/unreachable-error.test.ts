/** Every engine reports in the same way that it cannot be reached: a program need not know which engine it uses. */
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { expect, test } from 'vitest'
import { connect } from '../src/connect/connect.ts'
import { LeaseError } from '../src/errors.ts'
import { EtcdStore } from '../src/store/etcd/etcd.ts'
import { errnoOf, unreachableError, unreachableWithCode } from '../src/unreachable-error.ts'
import { RemoteLessor } from '../src/wire/resp/client.ts'
import { serverAddressOf } from '../src/wire/resp/dial.ts'

/** A port on which nothing listens: connections are refused at once. */
async function closedPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

const engines: readonly [engine: string, open: (at: string) => Promise<unknown>][] = [
  ['postgres', at => connect(`postgres://ann:secret@${at}/leases`)],
  ['redis', at => connect(`redis://:secret@${at}`)],
  ['etcd', at => new EtcdStore({ endpoints: [at], timeout: 100 }).open()],
  ['leasehold', at => RemoteLessor.open({ ...serverAddressOf(`leasehold://${at}`), connectWithin: 200 })],
  ['leasehold', at => connect(`http://${at}`)],
]

test.each(engines)(
  '%s at a closed port is UNAVAILABLE with the reason unreachable, and names itself, its place and the errno',
  async (engine, open) => {
    const at = `127.0.0.1:${await closedPort()}`
    const error = await open(at).then(
      () => undefined,
      (thrown: unknown) => thrown,
    )
    if (!LeaseError.is(error, 'UNAVAILABLE')) throw error
    expect(error.reason).toBe('unreachable')
    expect(Object.keys(error.facts).sort()).toEqual(['engine', 'errno', 'where'])
    expect(error.facts).toMatchObject({ engine, where: expect.stringContaining(at), errno: 'ECONNREFUSED' })
    expect(error.message).toMatch(/cannot be reached.*nothing was done/)
    expect(JSON.stringify([error.message, error.facts])).not.toContain('secret')
  },
)

test('the errno is found behind the errors of fetch and of names with several addresses, and a code of Node is none', () => {
  const refused = Object.assign(new Error('connect'), { code: 'ECONNREFUSED' })
  expect(errnoOf(new TypeError('fetch failed', { cause: refused }))).toBe('ECONNREFUSED')
  expect(errnoOf(new AggregateError([refused]))).toBe('ECONNREFUSED')
  expect(errnoOf(Object.assign(new Error('x'), { code: 'ERR_SSL_WRONG_VERSION_NUMBER' }))).toBeUndefined()
  expect(errnoOf(undefined)).toBeUndefined()
})

test('with another code the facts stay, and the message says what is known', () => {
  const error = unreachableError({ engine: 'etcd', where: 'a:1, b:2', cause: new Error('reset'), detail: 'no answer for 5 ms' })
  expect(error.message).toBe(
    'a:1, b:2 cannot be reached (no answer for 5 ms: reset): nothing was done. Check that it runs and that the address is right',
  )
  const unknown = unreachableWithCode(error, 'UNKNOWN')
  expect(unknown).toMatchObject({ code: 'UNKNOWN', reason: 'unreachable', facts: error.facts, cause: error.cause })
  expect(unknown.message).toContain('it may or may not have been done')
})
