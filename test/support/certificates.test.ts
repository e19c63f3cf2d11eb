import { execFileSync } from 'node:child_process'
import { expect, test } from 'vitest'
import { downloading, setCertificatesAside } from './certificates.ts'

test('what a test starts reads no authorities of the system, and what downloads does', () => {
  const print = (env: NodeJS.ProcessEnv) =>
    execFileSync(process.execPath, ['-p', 'process.env.NODE_EXTRA_CA_CERTS'], { env, encoding: 'utf8', stdio: 'pipe' }).trim()
  expect(print(process.env)).toBe('undefined')
  const env: NodeJS.ProcessEnv = { PATH: process.env.PATH, NODE_EXTRA_CA_CERTS: '/dev/null' }
  setCertificatesAside(env)
  expect(print(env)).toBe('undefined')
  expect(print(downloading(env))).toBe('/dev/null')
})

test('without such a setting, none is made', () => {
  const env = { PATH: '/bin' }
  setCertificatesAside(env)
  expect(env).toEqual({ PATH: '/bin' })
  expect(downloading(env)).toEqual({ PATH: '/bin' })
})
