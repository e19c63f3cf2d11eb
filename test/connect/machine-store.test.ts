/** The store that all users of a machine share: which file names it, who may write that file, and two users who exclude each other. */
import { chmodSync, chownSync, mkdirSync, writeFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { machineFile, machineStore } from '../../src/connect/machine-store.ts'
import { defaultUrl } from '../../src/connect/url.ts'
import { Place, program } from '../support/cli.ts'
import { describeWith, programs, unprivilegedUser } from '../support/engine.ts'

const isRoot = process.getuid?.() === 0

describe.skipIf(!isRoot)("the machine's file", () => {
  test('names the default store of all users, and an absent one names none', async () => {
    await using here = new Place()
    const path = here.file('machine.json')
    const env = { LEASEHOLD_MACHINE_FILE: path, XDG_STATE_HOME: '/state' }
    expect(defaultUrl(env)).toBe('file:/state/leasehold/leasehold.db')
    writeFileSync(path, '{"store":"leasehold:///run/leasehold/leasehold.sock"}')
    expect(defaultUrl(env)).toBe('leasehold:///run/leasehold/leasehold.sock')
    writeFileSync(path, '{"serve":{}}')
    expect(defaultUrl(env)).toBe('file:/state/leasehold/leasehold.db')
    expect(machineFile({})).toBe('/etc/leasehold/leasehold.json')
    expect(machineStore({ LEASEHOLD_MACHINE_FILE: '' })).toBeUndefined()
  })

  test.each([
    ['can be written by its group', '{"store":"memory:"}', 0o664, 0],
    ['can be written by all', '{"store":"memory:"}', 0o646, 0],
    ['belongs to another user', '{"store":"memory:"}', 0o644, 65_534],
    ['is not JSON', 'store=memory:', 0o644, 0],
    ['names a relative file', '{"store":"file:leases.db"}', 0o644, 0],
    ['names no text', '{"store":7}', 0o644, 0],
    ['is too long', `{"store":"memory:"}${' '.repeat(70_000)}`, 0o644, 0],
  ])('a file that %s is an error, and not ignored', async (_, text, mode, uid) => {
    await using here = new Place()
    const path = here.file('machine.json')
    writeFileSync(path, text)
    chmodSync(path, mode)
    chownSync(path, uid, 0)
    expect(() => machineStore({ LEASEHOLD_MACHINE_FILE: path })).toThrow(
      expect.objectContaining({ code: 'INVALID', message: expect.stringContaining(path) }),
    )
    const { code, stderr } = await here.run(['ls'], { env: { LEASEHOLD_MACHINE_FILE: path } })
    expect([code, stderr]).toEqual([78, expect.stringMatching(/settings of this machine[\s\S]*--store or LEASEHOLD_URL/)])
  })

  test('a flag, the environment and the configuration file of the user come first', async () => {
    await using here = new Place()
    const path = here.file('machine.json')
    writeFileSync(path, '{"store":"leasehold:///no/such.sock"}')
    const env = { LEASEHOLD_MACHINE_FILE: path }
    const machine = await here.run(['ls'], { env })
    expect([machine.code, machine.stderr]).toEqual([69, expect.stringContaining('--socket /no/such.sock')])
    expect((await here.run(['ls', '--store', 'memory:'], { env })).code).toBe(0)
    expect((await here.run(['ls'], { env: { ...env, LEASEHOLD_URL: 'memory:' } })).code).toBe(0)
    mkdirSync(here.file('leasehold'))
    writeFileSync(here.file('leasehold/leasehold.json'), '{"store":"memory:"}')
    expect((await here.run(['ls'], { env })).code).toBe(0)
  })
})

describeWith([programs.setpriv], 'two users of a machine', () => {
  test.skipIf(!isRoot)('exclude each other by the default store, without a setting of their own', async () => {
    await using here = new Place()
    chmodSync(here.path, 0o755)
    const [socket, machine, state] = [here.file('leasehold.sock'), here.file('machine.json'), here.file('state')]
    const { uid, gid } = unprivilegedUser()
    mkdirSync(state)
    chownSync(state, uid, gid)
    writeFileSync(machine, JSON.stringify({ store: `leasehold://${socket}` }))
    const server = here.start(['serve', '--store', `file:${here.file('leases.db')}`, '--socket', socket, '--socket-mode', '0666'])
    await server.printed(/leasehold\.sock/)
    const env = { LEASEHOLD_MACHINE_FILE: machine }
    const asOther = (args: readonly string[]) =>
      here.spawn('setpriv', [`--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', process.execPath, program, ...args], {
        env: { ...env, XDG_STATE_HOME: state, HOME: state },
      })
    const held = asOther(['run', 'jobs/nightly', '--', 'sh', '-c', 'id -u; read _'])
    await held.printed(new RegExp(`^${uid}$`, 'm'))
    const refused = await here.run(['run', 'jobs/nightly', '--no-wait', '--', 'echo', 'both'], { env })
    expect([refused.code, refused.stdout, refused.stderr]).toEqual([75, '', expect.stringContaining('has been held by')])
    held.process.stdin!.end('\n')
    expect((await held.finished).code).toBe(0)
    const later = await here.run(['run', 'jobs/nightly', '--no-wait', '--', 'id', '-u'], { env })
    expect([later.code, later.stdout]).toEqual([0, '0\n'])
    // The file itself stays the server's own.
    const direct = await asOther(['ls', '--store', `file:${here.file('leases.db')}`]).finished
    expect([direct.code, direct.stdout]).toEqual([77, ''])
  })

  test.skipIf(!isRoot)('a socket without a mode is for its own user', async () => {
    await using here = new Place()
    chmodSync(here.path, 0o755)
    const socket = here.file('leasehold.sock')
    const server = here.start(['serve', '--store', 'memory:', '--socket', socket])
    await server.printed(/leasehold\.sock/)
    const { uid, gid } = unprivilegedUser()
    const args = [`--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', process.execPath, program, 'ls', '--store', `leasehold://${socket}`]
    const { code, stderr } = await here.spawn('setpriv', args).finished
    expect([code, stderr]).toEqual([69, expect.stringContaining('who may use the socket')])
  })
})
