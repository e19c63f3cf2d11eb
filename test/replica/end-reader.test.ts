/** Reading a log to its end, over a store whose connection is lost. */
import { expect, test } from 'vitest'
import { LeaseError } from '../../src/errors.ts'
import { EndReader, readToEnd } from '../../src/replica/end-reader.ts'
import { LARGE_ANSWER } from '../../src/store.ts'

/** A log of `records` records whose reads fail as `failures` says, and then work. */
function reader(records: number, failures: readonly LeaseError[]) {
  const left = [...failures]
  const seen = { reads: 0, failed: [] as unknown[] }
  const log = {
    state: { index: 0 },
    sinceSnapshot: { bytes: 0 },
    async readOn() {
      seen.reads++
      const failure = left.shift()
      if (failure !== undefined) throw failure
      return ++log.state.index < records
    },
  }
  return { log, seen, reader: new EndReader(log, { fail: error => void seen.failed.push(error) }) }
}

const lost = new LeaseError('UNAVAILABLE', 'the connection was lost')

test('a connection whose loss the first read finds out costs no caller an error', async () => {
  const { log, seen, reader: end } = reader(3, [lost])
  await end.toTheEnd()
  expect(log.state.index).toBe(3)
  expect(seen).toEqual({ reads: 4, failed: [] })
})

test('a store that fails the second read too is reported', async () => {
  const { seen, reader: end } = reader(3, [lost, lost])
  await expect(end.toTheEnd()).rejects.toBe(lost)
  expect(seen).toEqual({ reads: 2, failed: [] })
})

test('a damaged log is not read again', async () => {
  const damage = new LeaseError('DIVERGED', 'damaged')
  const { seen, reader: end } = reader(3, [damage])
  await expect(end.toTheEnd()).rejects.toBe(damage)
  expect(seen).toEqual({ reads: 1, failed: [damage] })
})

test('a log that grows faster than it is read has an end: it ends after some small answers, also while it is opened', async () => {
  const { log, seen, reader: end } = reader(Number.POSITIVE_INFINITY, [])
  await end.toTheEnd()
  expect(seen.reads).toBe(4)
  await readToEnd(log)
  expect(seen.reads).toBe(8)
})

test('large answers are followed by others, however many there are', async () => {
  const { log, reader: end } = reader(40, [])
  const { readOn } = log
  log.readOn = async () => {
    if (log.state.index < 30) log.sinceSnapshot.bytes += LARGE_ANSWER.bytes
    return readOn()
  }
  await end.toTheEnd()
  expect(log.state.index).toBe(34)
  await end.toTheEnd()
  expect(log.state.index).toBe(38)
})
