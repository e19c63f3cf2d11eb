/** Which files a store accepts: it follows no link, and refuses files that other users may read or write, with a message that helps. */
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { networkInterfaces, tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { connect } from '../src/connect/connect.ts'
import { operatorSecret } from '../src/connect/operator-secret.ts'
import { LeaseError } from '../src/errors.ts'
import { FileStore } from '../src/store/file/file.ts'
import { Place } from './support/cli.ts'

const root = process.getuid?.() === 0

describe('a symbolic link is not followed', () => {
  test('in place of the data file: its target is neither created nor used', async () => {
    using folder = new Folder()
    const [dangling, leading, theirs] = [folder.file('dangling.db'), folder.file('leading.db'), folder.file('theirs.db')]
    symlinkSync(folder.file('made-by-link.db'), dangling)
    expect(await refused(dangling)).toMatchObject({ code: 'INVALID', reason: 'link', facts: { path: dangling } })
    expect(existsSync(folder.file('made-by-link.db'))).toBe(false)
    await filled(theirs)
    symlinkSync(theirs, leading)
    const before = folder.files()
    expect((await refused(leading)).message).toContain(`is a symbolic link to ${theirs}`)
    expect(folder.files()).toEqual(before)
  })

  test.each(['-head', '-owner', '-journal'])('in place of PATH%s: its target keeps its content', async side => {
    using folder = new Folder()
    const [path, precious] = [folder.file('log.db'), folder.file('precious')]
    writeFileSync(precious, 'do not touch', { mode: 0o600 })
    symlinkSync(precious, `${path}${side}`)
    expect(await refused(path)).toMatchObject({ code: 'INVALID', reason: 'link', facts: { path: `${path}${side}` } })
    expect(readFileSync(precious, 'utf8')).toBe('do not touch')
    expect(existsSync(path)).toBe(false)
  })

  test('in place of a socket for the server', async () => {
    await using here = new Place()
    writeFileSync(here.file('precious'), 'do not touch')
    symlinkSync(here.file('precious'), here.file('socket'))
    const { code, stderr } = await here.run(['serve', '--socket', here.file('socket')])
    expect(code).toBe(64)
    expect(stderr).toContain('exists and is not a socket')
    expect(readFileSync(here.file('precious'), 'utf8')).toBe('do not touch')
  })

  test('in place of a backup: the link is replaced, and its target keeps its content', async () => {
    await using here = new Place()
    writeFileSync(here.file('precious'), 'do not touch')
    symlinkSync(here.file('precious'), here.file('backup'))
    expect((await here.answer(['backup', here.file('backup')])).code).toBe(0)
    expect(lstatSync(here.file('backup')).isFile()).toBe(true)
    expect(lstatSync(here.file('backup')).mode & 0o777).toBe(0o600)
    expect(readFileSync(here.file('precious'), 'utf8')).toBe('do not touch')
  })
})

describe('a file that other users may use is refused', () => {
  test('the data file and each beside it, with the mode to give it', async () => {
    using folder = new Folder()
    const path = folder.file('log.db')
    await filled(path)
    for (const side of ['', '-head', '-owner']) {
      for (const mode of [0o644, 0o660, 0o602]) {
        chmodSync(`${path}${side}`, mode)
        const error = await refused(path)
        expect(error).toMatchObject({ code: 'UNAVAILABLE', reason: 'mode', facts: { path: `${path}${side}` } })
        expect(error.message).toContain(`chmod 600 ${path}${side}`)
      }
      chmodSync(`${path}${side}`, 0o600)
    }
    await filled(path)
  })

  test("SQLite's own file beside it, unless it is empty: then SQLite removes it", async () => {
    using folder = new Folder()
    const path = folder.file('log.db')
    await filled(path)
    for (const side of ['-journal', '-owner-journal']) {
      writeFileSync(`${path}${side}`, 'x', { mode: 0o644 })
      expect(await refused(path)).toMatchObject({ code: 'UNAVAILABLE', reason: 'mode', facts: { path: `${path}${side}` } })
      rmSync(`${path}${side}`)
    }
    writeFileSync(`${path}-journal`, '', { mode: 0o644 })
    await using store = new FileStore({ path })
    await store.open()
    expect(existsSync(`${path}-journal`)).toBe(false)
  })

  test.runIf(root)('that of another user, even by root, with the user to run as', async () => {
    using folder = new Folder()
    const path = folder.file('log.db')
    await filled(path)
    for (const side of ['', '-head', '-owner']) {
      chownSync(`${path}${side}`, 65_534, 65_534)
      const error = await refused(path)
      expect(error).toMatchObject({ code: 'UNAVAILABLE', reason: 'permission', facts: { path: `${path}${side}`, owner: 65_534 } })
      expect(error.message).toContain('run it as user 65534')
      chownSync(`${path}${side}`, 0, 0)
    }
    await filled(path)
  })

  test('by commands and by the server alike: 77, and the message says what to do', async () => {
    await using here = new Place()
    expect((await here.answer(['ls'])).code).toBe(0)
    const path = here.file('leasehold/leasehold.db')
    chmodSync(path, 0o644)
    for (const command of [['ls'], ['serve', '--listen', '127.0.0.1:0'], ['backup', here.file('b')], ['watch']]) {
      const { code, stderr } = await here.run(command)
      expect(code, command[0]).toBe(77)
      expect(stderr, command[0]).toContain(`chmod 600 ${path}`)
      expect(stderr, command[0]).not.toContain('can be reached')
    }
  })
})

test('every file of a server is private to its user', async () => {
  await using here = new Place()
  const server = here.start(['serve', '--listen', '127.0.0.1:0', '--socket', here.file('leasehold/socket')])
  await server.printed(/http:/)
  expect((await here.answer(['ls'])).code).toBe(0)
  const folder = here.file('leasehold')
  const files = readdirSync(folder)
  expect(files).toContain('leasehold.db-operator')
  expect(files).toContain('socket')
  for (const file of files)
    expect([file, (statSync(join(folder, file)).mode & 0o777).toString(8)]).toEqual([file, file.endsWith('-log') ? '700' : '600'])
})

describe('the operator secret is sent only to the server of the store', () => {
  const secret = `lh_${'s'.repeat(43)}`

  /** A data file whose owner announces an address on which this test listens, and what arrives there. */
  async function announced(path: string): Promise<AsyncDisposable & { received(): string }> {
    let received = ''
    const listener = createServer(socket => {
      socket.on('error', () => {})
      socket.setEncoding('latin1').on('data', text => {
        received += text
        socket.end('-ERR no\r\n')
      })
    })
    await new Promise<void>(resolve => listener.listen(0, '127.0.0.1', resolve))
    const { port } = listener.address() as { port: number }
    const store = new FileStore({ path, own: { name: 'planted', address: `leasehold://127.0.0.1:${port}` } })
    await store.open()
    return {
      received: () => received,
      async [Symbol.asyncDispose]() {
        await store[Symbol.asyncDispose]()
        await new Promise(resolve => listener.close(resolve))
      },
    }
  }

  test('a link in its place is not followed, and nothing is sent', async () => {
    using folder = new Folder()
    const [path, precious] = [folder.file('log.db'), folder.file('precious')]
    writeFileSync(precious, 'a private key', { mode: 0o600 })
    symlinkSync(precious, `${path}-operator`)
    await using there = await announced(path)
    expect(await connect(`file:${path}`).catch(error => error)).toMatchObject({ code: 'INVALID', reason: 'link' })
    expect(there.received()).toBe('')
  })

  test('a secret that other users may read, and a file without a secret, are not sent', async () => {
    using folder = new Folder()
    const path = folder.file('log.db')
    writeFileSync(`${path}-operator`, secret, { mode: 0o644 })
    await using there = await announced(path)
    expect(await connect(`file:${path}`).catch(error => error)).toMatchObject({ code: 'UNAVAILABLE', reason: 'mode' })
    expect(there.received()).toBe('')
    writeFileSync(`${path}-operator`, 'a private key')
    chmodSync(`${path}-operator`, 0o600)
    await connect(`file:${path}`).catch(() => {})
    expect(there.received()).not.toContain('private')
  })

  test('it is sent to a server of this machine', async () => {
    using folder = new Folder()
    const path = folder.file('log.db')
    writeFileSync(`${path}-operator`, secret, { mode: 0o600 })
    await using there = await announced(path)
    await connect(`file:${path}`).catch(() => {})
    expect(there.received()).toContain(secret)
  })

  test('it is not sent to another machine, nor to a socket of another user', () => {
    using folder = new Folder()
    const path = folder.file('log.db')
    writeFileSync(`${path}-operator`, secret, { mode: 0o600 })
    const sent = (address: string) => operatorSecret({ path, address }) !== undefined
    for (const host of ['192.0.2.1', '[2001:db8::1]', 'example.invalid', '127.0.0.1.example.invalid', 'me@192.0.2.1'])
      for (const scheme of ['leasehold', 'leaseholds', 'http']) expect(sent(`${scheme}://${host}:7420`), host).toBe(false)
    expect(sent('leasehold://127.0.0.1:7420,192.0.2.1:7420')).toBe(false)
    expect(sent(`leasehold://${folder.file('no-socket')}`)).toBe(false)
    const own = Object.values(networkInterfaces()).flatMap(found => found ?? [])
    for (const { address, family } of own)
      expect(sent(`leasehold://${family === 'IPv6' ? `[${address}]` : address}:7420`), address).toBe(true)
  })
})

describe('a path where no file can be created is refused at once', () => {
  test.each([
    ['below a folder of the system that takes none', '/proc/nope/x.db', /\/proc\/nope/],
    ['deep below it', '/proc/nope/a/b/c/x.db', /\/proc\/nope/],
    ['in it', '/proc/x.db', /\/proc\/x\.db/],
    ['below a file', '/etc/passwd/x/y.db', /\/etc\/passwd/],
    ['below a device', '/dev/null/x.db', /\/dev\/null/],
    ['a device itself', '/dev/null', /is not a plain file/],
    ['with a name too long', `/tmp/${'x'.repeat(300)}/x.db`, /too long/i],
  ])('%s', async (_, path, words) => {
    await using here = new Place()
    const { code, stderr } = await here.answer(['ls', '--store', `file:${path}`])
    expect(stderr).toMatch(words)
    expect([64, 69, 77]).toContain(code)
    expect(stderr).not.toContain('can be reached')
  })

  test('and a command that waits on a file ends with the first TERM', async () => {
    await using here = new Place()
    const child = here.start(['watch'])
    await expect.poll(() => existsSync(here.file('leasehold/leasehold.db-head'))).toBe(true)
    child.process.kill('SIGTERM')
    expect(await child.finished).toMatchObject({ code: 143 })
  })
})

// ---------------------------------------------------------------------------------------------------------------------------

class Folder implements Disposable {
  readonly name = mkdtempSync(join(tmpdir(), 'leasehold-rights-'))

  file(name: string): string {
    return join(this.name, name)
  }

  files(): string[] {
    return readdirSync(this.name)
  }

  [Symbol.dispose](): void {
    rmSync(this.name, { recursive: true })
  }
}

async function filled(path: string): Promise<void> {
  await using store = new FileStore({ path })
  const { head } = await store.open()
  await store.append(Uint8Array.of(1), head)
}

async function refused(path: string): Promise<LeaseError> {
  await using store = new FileStore({ path })
  const error = await store.open().catch(error => error)
  expect(error).toBeInstanceOf(LeaseError)
  return error
}
