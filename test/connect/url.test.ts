/** URLs of stores and servers: mistakes in them, and how messages show them. */
import { expect, test } from 'vitest'
import { open } from '../../src/connect/connect.ts'
import { redactedUrl } from '../../src/connect/url.ts'
import type { LeaseError } from '../../src/errors.ts'

test('an invalid URL is reported as INVALID, without its password', async () => {
  for (const url of ['http://', 'http://h:99999', 'file://foo/bar.db', 'file:///tmp/%zz', 'mysql://u:s3cret@h', 'mysql://u:s3/cr@et@h']) {
    const error = await open(url).then(
      () => undefined,
      found => found as LeaseError,
    )
    expect([url, error?.code]).toEqual([url, 'INVALID'])
    expect(`${error!.message}${JSON.stringify(error!.facts)}`).not.toMatch(/s3/)
  }
  await expect(open('127.0.0.1:7420')).rejects.toThrow(/did you mean leasehold:\/\/127\.0\.0\.1:7420\?/)
  await expect(open('localhost:7420')).rejects.toThrow(/did you mean leasehold:\/\/localhost:7420\?/)
  await expect(open('leases.db')).rejects.toThrow(/did you mean file:leases\.db\?/)
})

test('a URL in a message keeps its user and has no password; what stands before the host of a server may be a key, and is left out', () => {
  expect(redactedUrl('postgres://me:secret@db:5432/x?name=a')).toBe('postgres://me@db:5432/x?name=a')
  expect(redactedUrl('leasehold://:secret@[::1]:7420')).toBe('leasehold://[::1]:7420')
  expect(redactedUrl('postgres://leases@db/x?mail=a@b')).toBe('postgres://leases@db/x?mail=a@b')
  expect(redactedUrl('postgres://me:a@b:c/d@db/x')).toBe('postgres://me@db/x')
  expect(redactedUrl('postgres://db:5432/x?mail=a@b')).toBe('postgres://db:5432/x?mail=a@b')
  expect(redactedUrl('postgres://me@db/x?password=secret&sslpassword=s2&name=a')).toBe('postgres://me@db/x?password=…&sslpassword=…&name=a')
  expect(redactedUrl('redis://:secret@r:6379')).toBe('redis://r:6379')
  expect(redactedUrl('https://key@host:7420')).toBe('https://host:7420')
  expect(redactedUrl('file:/a@b/c.db')).toBe('file:/a@b/c.db')
})
