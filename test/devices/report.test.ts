import { expect, test } from 'vitest'
import type { AttributedProcess } from '../../src/devices/attribution.ts'
import { isNews, parseReport, reportOf } from '../../src/devices/report.ts'
import { VALUE_BYTES } from '../../src/kernel/name.ts'

const device = { id: 'a', labels: {}, utilisation: 50, memoryUsed: 10 }
const worker: AttributedProcess = { pid: 5, user: 'ann', started: 7, age: 1_000, lease: 3 }
const input = { host: 'h', device, processes: [worker], idle: 0, stage: 'none' } as const

test('a report is news when a reader would act on it, not when an age grows or utilisation flickers', () => {
  const before = reportOf(input)
  const after = (change: object) => reportOf({ ...input, ...change })
  expect(isNews(undefined, before)).toBe(true)
  expect(isNews(before, after({ processes: [{ ...worker, age: 99_999 }], device: { ...device, utilisation: 60, memoryUsed: 10.5 } }))).toBe(
    false,
  )
  expect(isNews(before, after({ device: { ...device, utilisation: 70 } }))).toBe(true)
  expect(isNews(before, after({ device: { ...device, memoryUsed: 12 } }))).toBe(true)
  expect(isNews(before, after({ device: { id: 'a', labels: {} } }))).toBe(true)
  expect(isNews(before, after({ processes: [] }))).toBe(true)
  expect(isNews(before, after({ processes: [{ ...worker, lease: 0 }] }))).toBe(true)
  expect(isNews(before, after({ processes: [{ ...worker, started: 8 }] }))).toBe(true)
  expect(isNews(before, after({ stage: 'warn' }))).toBe(true)
  expect(isNews(before, after({ problem: 'hangs' }))).toBe(true)
})

test('the largest report fits into an entry, with processes without a lease first', () => {
  const many = Array.from({ length: 64 }, (_, i) => ({
    ...worker,
    pid: i,
    name: '\u{1f600}'.repeat(64),
    user: '\u{1f600}'.repeat(64),
    lease: i === 63 ? 0 : 1,
  }))
  const report = reportOf({ ...input, processes: many, problem: 'x'.repeat(10_000) })
  expect(Buffer.byteLength(JSON.stringify(report))).toBeLessThan(VALUE_BYTES)
  expect([report.processes[0]!.pid, report.unleased, report.more]).toEqual([63, 1, 48])
})

test('a report can be read back, and an entry with anything else is none', () => {
  const report = reportOf({ ...input, stage: 'recall', idle: 7 })
  expect(parseReport(JSON.stringify(report))).toEqual(report)
  for (const text of ['', 'null', '7', '{}', '{"host":"h","processes":[],"stage":"x"}', '{"host":1,"processes":[],"stage":"none"}'])
    expect(parseReport(text)).toBeUndefined()
  const odd = '{"host":"h","stage":"none","processes":[null,7,{"pid":"x"},{"pid":1,"user":"u","age":-1}],"unleased":"many"}'
  expect(parseReport(odd)).toEqual({
    ...{ host: 'h', stage: 'none', more: 0, unleased: 0, idle: 0 },
    processes: [{ pid: 1, user: 'u', started: 0, age: 0, lease: 0 }],
  })
})
