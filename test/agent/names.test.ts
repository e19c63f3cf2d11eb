/** Names as a model writes them: inside the workspace, or refused with what to write instead. */
import { describe, expect, test } from 'vitest'
import { ClaimNames, oneLine } from '../../src/agent/names.ts'
import { LeaseError } from '../../src/errors.ts'

const names = new ClaimNames({ root: '/home/ann/app', prefix: 'repo/github.com/acme/app' })
const free = new ClaimNames()

describe('a name', () => {
  test.each([
    ['src/a.ts', 'repo/github.com/acme/app/src/a.ts'],
    ['./src//b/../a.ts', 'repo/github.com/acme/app/src/a.ts'],
    ['/home/ann/app/src/a.ts', 'repo/github.com/acme/app/src/a.ts'],
    ['repo/github.com/acme/app/src/a.ts', 'repo/github.com/acme/app/src/a.ts'],
    ['repo/github.com/acme/app/x/../src/a.ts', 'repo/github.com/acme/app/src/a.ts'],
    ['.', 'repo/github.com/acme/app'],
    ['name:deploy/prod', 'deploy/prod'],
    ['<img src=x onerror=alert(1)>', 'repo/github.com/acme/app/<img src=x onerror=alert(1)>'],
  ])('%s is the resource %s', (name, resource) => {
    expect(names.resource(name)).toBe(resource)
  })

  test.each([
    ['..', /leaves the workspace by "\.\.": write a path inside it/],
    ['../other/secret', /leaves the workspace/],
    ['src/../../other', /leaves the workspace/],
    ['/home/ann/app/../other', /leaves the workspace/],
    ['repo/github.com/acme/app/../other', /leaves the workspace/],
    ['/etc/passwd', /outside of the workspace \/home\/ann\/app: only paths inside it/],
    ['/home/bob/app/src/a.ts', /outside of the workspace/],
    ['/home/ann/app2/a.ts', /outside of the workspace/],
    ['C:\\Users\\bob\\a.ts', /outside of the workspace/],
    ['~bob/a.ts', /names a home directory: write a path relative/],
    ['~/a.ts', /names a home directory/],
    ['a\u0000b', /control/],
    ['a\u001b[31mred', /control/],
    ['a\nb', /control/],
    ['x'.repeat(5_000), /longer than 4096 characters/],
    [7, /must be text/],
    [null, /must be text/],
  ])('%j is refused with what to write instead', (name, message) => {
    expect(() => names.resource(name)).toThrow(LeaseError)
    expect(() => names.resource(name)).toThrow(message)
  })

  test('without a workspace may not be an absolute path or leave its folder', () => {
    expect(free.resource('deploy/prod')).toBe('deploy/prod')
    expect(() => free.resource('/etc/passwd')).toThrow(/no workspace is known: write it relative/)
    expect(() => free.resource('../x')).toThrow(/leaves the workspace/)
  })

  test('of a claim is counted before it is looked at', () => {
    const many = Array.from({ length: 10_000 }, () => ({ toString: () => expect.unreachable() }))
    expect(() => names.resources(many)).toThrow(/10000 names in one claim, more than \d+: claim the folder that contains them/)
  })
})

test('a text for other models and people is one line without control and format characters', () => {
  expect(oneLine('a\u202Eb\u0007\n<b>c</b>\ud800', 100)).toBe('a b <b>c</b>\ufffd')
  expect(oneLine('x'.repeat(1_000), 10)).toBe('x'.repeat(10))
})
