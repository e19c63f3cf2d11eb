import { expect, test } from 'vitest'
import type { DeviceListing } from '../../src/devices/device.ts'
import { DevicePresence } from '../../src/devices/presence.ts'

function listing(...ids: string[]): DeviceListing {
  return { devices: ids.map(id => ({ id, labels: {} })), problems: [] }
}

function ids(presence: DevicePresence): string[] {
  return presence.devices.map(({ id }) => id)
}

test('a device is withdrawn when two complete runs in a row do not list it, not by one', () => {
  const presence = new DevicePresence(60_000)
  presence.update(0, listing('a', 'b'))
  expect(presence.update(10_000, listing('a'))).toEqual([])
  expect(ids(presence)).toEqual(['a', 'b'])
  presence.update(20_000, listing('a', 'b')) // it was there after all
  expect(presence.update(30_000, listing('a'))).toEqual([])
  expect(presence.update(40_000, listing('a'))).toEqual(['b'])
  expect(ids(presence)).toEqual(['a'])
})

test('failed runs say nothing: devices stay for the patience, and are withdrawn after it', () => {
  const presence = new DevicePresence(60_000)
  presence.update(0, listing('a'))
  for (let at = 10_000; at < 60_000; at += 10_000) expect(presence.update(at, undefined)).toEqual([])
  expect(presence.update(60_000, undefined)).toEqual(['a'])
  presence.update(70_000, listing('a'))
  expect(ids(presence)).toEqual(['a'])
})

test('a run with problems does not count as the absence of a device', () => {
  const presence = new DevicePresence(60_000)
  presence.update(0, listing('a', 'b'))
  const partial = { ...listing('a'), problems: ['half a line'] }
  for (let at = 10_000; at < 60_000; at += 10_000) expect(presence.update(at, partial)).toEqual([])
  expect(presence.update(60_000, partial)).toEqual(['b'])
})

test('a device keeps the labels of the last run that listed it', () => {
  const presence = new DevicePresence(60_000)
  presence.update(0, { devices: [{ id: 'a', labels: { index: '0' } }], problems: [] })
  presence.update(1, { devices: [{ id: 'a', labels: { index: '1' } }], problems: [] })
  expect(presence.devices).toEqual([{ id: 'a', labels: { index: '1' } }])
})
