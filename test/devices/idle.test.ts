import { expect, test } from 'vitest'
import { IdleMeter, idleStage, lowerStage } from '../../src/devices/idle.ts'

const rules = { below: 5, warn: 30, recall: 45, end: 60 }

test('stages begin after their time, and a stage that is left out is skipped', () => {
  expect([29, 30, 45, 59, 60, 1e9].map(ms => idleStage(rules, ms))).toEqual(['none', 'warn', 'recall', 'recall', 'end', 'end'])
  expect(idleStage({ below: 5, end: 60 }, 59)).toBe('none')
  expect(lowerStage('end', 'warn')).toBe('warn')
  expect(lowerStage('none', 'recall')).toBe('none')
})

test('idle time counts between reports below the threshold, and one report above it begins anew', () => {
  const meter = new IdleMeter()
  for (const at of [0, 10, 20, 30]) meter.sample(at, '1', 0, 5, 100)
  expect(meter.ms).toBe(30)
  meter.sample(40, '1', 5, 5, 100)
  expect(meter.ms).toBe(0)
  meter.sample(50, '1', 4.9, 5, 100)
  meter.sample(60, '1', 0, 5, 100)
  expect(meter.ms).toBe(10)
})

test('reports that are missing count neither as use nor as idleness', () => {
  const meter = new IdleMeter()
  meter.sample(0, '1', 0, 5, 100)
  meter.sample(10, '1', 0, 5, 100)
  meter.sample(20, '1', undefined, 5, 100)
  meter.sample(90, '1', 0, 5, 100)
  expect(meter.ms).toBe(10)
  meter.sample(100, '1', 0, 5, 100)
  expect(meter.ms).toBe(20)
})

test('time in which this process did not run does not count', () => {
  const meter = new IdleMeter()
  meter.sample(0, '1', 0, 5, 100)
  meter.sample(1_000_000, '1', 0, 5, 100)
  expect(meter.ms).toBe(0)
})

test('another holder begins the count anew, and a free device is never idle', () => {
  const meter = new IdleMeter()
  meter.sample(0, '1', 0, 5, 100)
  meter.sample(50, '1', 0, 5, 100)
  meter.sample(60, '2', 0, 5, 100)
  expect(meter.ms).toBe(0)
  meter.sample(70, '', 0, 5, 100)
  meter.sample(80, '', 0, 5, 100)
  expect(meter.ms).toBe(0)
})
