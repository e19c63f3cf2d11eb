/** A server whose certificate is signed by a private authority, and commands on its machine. */
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { Place } from '../support/cli.ts'
import { describeWith, programs } from '../support/engine.ts'

/** Creates a certificate for loopback and the certificate of its authority. */
function certified(here: Place): { readonly files: string[]; readonly ca: string } {
  const [ca, caKey, cert, key, csr, ext] = ['ca.pem', 'ca.key', 's.pem', 's.key', 's.csr', 's.ext'].map(name => here.file(name)) as [
    ...[string, string, string, string, string, string],
  ]
  const openssl = (...args: string[]) => execFileSync('openssl', args, { stdio: 'pipe' })
  const made = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']
  openssl('req', '-x509', ...made, '-keyout', caKey, '-out', ca, '-subj', '/CN=test authority', '-days', '2')
  openssl('req', ...made, '-keyout', key, '-out', csr, '-subj', '/CN=server')
  writeFileSync(ext, 'subjectAltName=IP:127.0.0.1')
  openssl('x509', '-req', '-in', csr, '-CA', ca, '-CAkey', caKey, '-CAcreateserial', '-days', '2', '-extfile', ext, '-out', cert)
  return { files: ['--tls-cert', cert, '--tls-key', key], ca }
}

describeWith([programs.openssl], 'a server with a certificate', () => {
  test('an untrusted certificate is reported as the reason, with a remedy', async () => {
    await using here = new Place()
    const { files, ca } = certified(here)
    const server = here.start(['serve', '--listen', '127.0.0.1:0', ...files])
    const [, port] = await server.printed(/https:\/\/127\.0\.0\.1:(\d+)\//)
    const [led, named, trusting] = await Promise.all([
      here.run(['ls']),
      here.run(['ls', '--store', `leaseholds://127.0.0.1:${port}`]),
      here.run(['ls'], { env: { NODE_EXTRA_CA_CERTS: ca } }),
    ])
    expect(led).toMatchObject({
      code: 69,
      stderr: expect.stringMatching(/leasehold\.db is served at leaseholds:[\s\S]*certificate is not trusted/),
    })
    expect(led.stderr).toMatch(/NODE_EXTRA_CA_CERTS=FILE[\s\S]*--socket/)
    expect(named).toMatchObject({ code: 69, stderr: expect.stringMatching(/certificate that is not trusted here[\s\S]*\?ca=FILE/) })
    expect(trusting.code).toBe(0)
  })

  test('if the server also has a socket, commands that open the file use the socket', async () => {
    await using here = new Place()
    const { files } = certified(here)
    const server = here.start(['serve', '--listen', '127.0.0.1:0', '--socket', here.file('a socket?'), ...files])
    await server.printed(/https:/)
    const { code, stdout } = await here.run(['run', 'jobs/a', '--', 'sh', '-c', 'echo in'])
    expect([code, stdout]).toEqual([0, 'in\n'])
  })

  test('commands that open the file find a server that has only a socket', async () => {
    await using here = new Place()
    const server = here.start(['serve', '--socket', here.file('s')])
    await server.printed(/serving/)
    expect((await here.run(['run', 'jobs/a', '--', 'true'])).code).toBe(0)
  })
})
