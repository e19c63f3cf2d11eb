import { expect, test } from 'vitest'
import { attribute, holderLabels, holderOf } from '../../src/devices/attribution.ts'
import { ageOf, type HostProcess, type HostProcesses, procProcesses } from '../../src/devices/host-processes.ts'

function table(processes: readonly HostProcess[], environments: Record<number, Record<string, string>> = {}): HostProcesses {
  return {
    find: pid => processes.find(process => process.pid === pid),
    variable: (pid, name) => environments[pid]?.[name],
    userName: uid => ({ 1: 'ann', 2: 'ben' })[uid] ?? `uid ${uid}`,
  }
}

const ann = holderOf(11, Object.entries(holderLabels({ user: 'ann', host: 'a', pid: 100, started: 5 })), 'x')
const uptime = 1_000_000

function leasesOf(processes: HostProcesses, pid: number, host = 'a') {
  return attribute([{ pid }], [ann], { processes, host, uptime }).map(({ lease, user }) => [lease, user])
}

test('a descendant of the process that a lease names runs under the lease, whatever user it belongs to', () => {
  const tree = table([
    { pid: 100, parent: 1, started: 5, uid: 1 },
    { pid: 101, parent: 100, started: 6, uid: 2 },
    { pid: 102, parent: 101, started: 7, uid: 2 },
  ])
  expect(leasesOf(tree, 102)).toEqual([[11, 'ben']])
  expect(leasesOf(tree, 102, 'other-host')).toEqual([[0, 'ben']])
})

test('a process with the pid of an ended holder is not taken for it: the start time differs', () => {
  expect(leasesOf(table([{ pid: 100, parent: 1, started: 900, uid: 2 }]), 100)).toEqual([[0, 'ben']])
})

test('an orphan is recognised by the lease in its environment, or by the user of the holder', () => {
  const orphan = { pid: 7, parent: 1, started: 9, uid: 2 }
  expect(leasesOf(table([orphan], { 7: { LEASEHOLD_LEASE: '11' } }), 7)).toEqual([[11, 'ben']])
  expect(leasesOf(table([orphan], { 7: { LEASEHOLD_LEASE: '12' } }), 7)).toEqual([[0, 'ben']])
  expect(leasesOf(table([{ ...orphan, uid: 1 }]), 7)).toEqual([[11, 'ann']])
})

test('a process that has ended, or that this host does not know, is left out', () => {
  expect(leasesOf(table([]), 7)).toEqual([])
})

test('a circle of parents, which only a broken table has, ends the search', () => {
  const circle = table([
    { pid: 7, parent: 8, started: 1, uid: 2 },
    { pid: 8, parent: 7, started: 1, uid: 2 },
  ])
  expect(leasesOf(circle, 7)).toEqual([[0, 'ben']])
})

test('labels that are no numbers are as if they were missing', () => {
  expect(
    holderOf(
      1,
      [
        ['pid', '-5'],
        ['started', '1e9'],
        ['user', 'u'],
      ],
      'h',
    ),
  ).toEqual({ lease: 1, user: 'u', host: '', pid: 0, started: 0 })
  expect(holderOf(1, [], 'h').user).toBe('h')
})

test.runIf(process.platform === 'linux')('this process is found with its parent, its age and its user', () => {
  const own = procProcesses.find(process.pid)!
  expect(own.parent).toBe(process.ppid)
  expect(ageOf(own, 1e12)).toBeGreaterThan(0)
  expect(procProcesses.userName(0)).toBe('root')
  expect(procProcesses.find(0)).toBeUndefined()
  expect(procProcesses.variable(process.pid, 'NO_SUCH_VARIABLE')).toBeUndefined()
})
