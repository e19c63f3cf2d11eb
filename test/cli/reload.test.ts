/** HUP: a running server reads its certificate and key again, and keeps the old ones if the new ones cannot be used. */
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { connect } from 'node:tls'
import { expect, test } from 'vitest'
import { Place } from '../support/cli.ts'
import { describeWith, programs } from '../support/engine.ts'

/** A self-signed certificate with its key, in the same two files each time. */
function issue(here: Place, name: string): { readonly cert: string; readonly key: string } {
  const [cert, key] = [here.file('server.pem'), here.file('server.key')]
  const made = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', `/CN=${name}`]
  execFileSync('openssl', ['req', '-x509', ...made, '-keyout', key, '-out', cert], { stdio: 'pipe' })
  return { cert, key }
}

function servedName(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false }, () => {
      resolve(socket.getPeerCertificate().subject.CN as string)
      socket.destroy()
    })
    socket.once('error', reject)
  })
}

describeWith([programs.openssl], 'HUP', () => {
  test('a server reads its certificate and its key again, and keeps them if the new files are broken', async () => {
    await using here = new Place()
    const { cert, key } = issue(here, 'first')
    const server = here.start(['serve', '--store', 'memory:', '--listen', '127.0.0.1:0', '--tls-cert', cert, '--tls-key', key])
    const port = Number((await server.printed(/https:\/\/127\.0\.0\.1:(\d+)\//))[1])
    expect(await servedName(port)).toBe('first')
    issue(here, 'second')
    expect(await servedName(port)).toBe('first') // not before the signal
    process.kill(server.pid, 'SIGHUP')
    await server.printed(/"tls":"reloaded","validTo":"[^"]+ GMT"/)
    expect(await servedName(port)).toBe('second')
    writeFileSync(cert, 'not a certificate')
    process.kill(server.pid, 'SIGHUP')
    await server.printed(/the old ones stay in use/)
    expect(await servedName(port)).toBe('second')
  })

  test('a server without certificates goes on after HUP', async () => {
    await using here = new Place()
    const server = here.start(['serve', '--store', 'memory:', '--listen', '127.0.0.1:0', '--probe', '127.0.0.1:0'])
    const [, url] = await server.printed(/probes: (http:\/\/[\d.:]+)\/healthz/)
    process.kill(server.pid, 'SIGHUP')
    await server.printed(/no certificates to read again/)
    expect((await fetch(`${url}/readyz`)).status).toBe(200)
  })
})
