/** Moments of a leased command that tests with real processes cannot hit reliably, such as a loss while the command is being started. */
import { expect, test } from 'vitest'
import { Output } from '../../../src/cli/output.ts'
import { LeasedProcess, type LeasedProcessOptions } from '../../../src/cli/process/leased-process.ts'
import { SignalForwarder } from '../../../src/cli/process/signal-forwarder.ts'
import { LeaseError } from '../../../src/errors.ts'
import { silentLessor } from '../../../src/testing/in-memory.ts'

test('a command whose lease is lost while it is being started is ended', { timeout: 60_000 }, async () => {
  const { leases, lessor } = silentLessor()
  const signals = new SignalForwarder()
  const notes: string[] = []
  const out = new Output({ json: false })
  out.note = text => void notes.push(text)
  try {
    const options: LeasedProcessOptions = {
      leases,
      signals,
      out,
      // Read when the lease is held and the command is not started yet.
      get url() {
        lessor.end(new LeaseError('DIVERGED', 'the log lost entries'))
        return 'memory:'
      },
      command: ['sleep', '40'],
      onLost: 'term',
      grace: 1_000,
    }
    const began = performance.now()
    expect(await new LeasedProcess(options).run(['a'], { ttl: '30s' })).toEqual({ code: 79, lost: true })
    expect(performance.now() - began).toBeLessThan(30_000)
    expect(notes.join()).toMatch(/a \(lease \d+\) is lost: the log lost entries\. Ending the command: TERM now/)
  } finally {
    signals.stop()
  }
})

test('after a stall of leasehold itself the command is not ended before the late renewal could be answered', {
  timeout: 60_000,
}, async () => {
  const { clock, leases, lessor } = silentLessor()
  const signals = new SignalForwarder()
  const notes: string[] = []
  const out = new Output({ json: true })
  const granted = new Promise<void>(resolve => {
    out.note = text => {
      notes.push(text)
      resolve()
    }
  })
  try {
    const command = ['sleep', '40']
    const ended = new LeasedProcess({ leases, signals, out, url: 'memory:', command, onLost: 'term', grace: 5_000 }).run(['a'], {
      ttl: '6s',
    })
    await granted
    clock.stall(4_500)
    for (let i = 0; i < 100; i++) await clock.advance(100)
    expect(notes).toEqual(['granted'])
    // Without an answer, the command is ended.
    lessor.stopAnswering()
    clock.stall(4_500)
    await clock.advance(1_000)
    expect(notes.join()).toMatch(/could not be renewed and would be lost in .* TERM now/)
    lessor.answer()
    expect(await ended).toEqual({ code: 79, lost: true })
  } finally {
    signals.stop()
  }
})
