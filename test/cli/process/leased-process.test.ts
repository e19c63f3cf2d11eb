/** Moments of a leased command that tests with real processes cannot hit reliably, such as a loss while the command is being started. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { Output } from '../../../src/cli/output.ts'
import { LeasedProcess, type LeasedProcessOptions } from '../../../src/cli/process/leased-process.ts'
import { SignalForwarder } from '../../../src/cli/process/signal-forwarder.ts'
import { LeaseError } from '../../../src/errors.ts'
import { silentLessor } from '../../../src/testing/in-memory.ts'
import { eventually } from '../../support/cli.ts'
import { whileTimePasses } from '../../support/virtual-time.ts'

test('a command whose lease is lost while it is being started is ended', async () => {
  const { clock, leases, lessor } = silentLessor()
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
      command: ['sleep', '600'],
      onLost: 'term',
      grace: 1_000,
    }
    expect(await whileTimePasses(clock, new LeasedProcess(options).run(['a'], { ttl: '30s' }), 1)).toEqual({ code: 79, lost: true })
    expect(notes.join()).toMatch(/a \(lease \d+\) is lost: the log lost entries\. Ending the command: TERM now/)
  } finally {
    signals.stop()
  }
})

test('after a stall of leasehold itself the command is not ended before the late renewal could be answered', async () => {
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
    const command = ['sleep', '600']
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
    expect(await whileTimePasses(clock, ended, 1)).toEqual({ code: 79, lost: true })
  } finally {
    signals.stop()
  }
})

test('a command that has run for as long as it may gets TERM, and its end is 124, whatever its own code', async () => {
  const { clock, leases } = silentLessor()
  const signals = new SignalForwarder()
  const out = new Output({ json: true })
  // Noted when the command is started, and its time begins.
  const granted = new Promise<void>(resolve => {
    out.note = () => resolve()
  })
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-max-time-'))
  const said = join(folder, 'said')
  try {
    const command = ['sh', '-c', 'trap "echo stopped >> $0; exit 3" TERM; echo up > $0; while :; do sleep 0.05; done', said]
    const options = { leases, signals, out, url: 'memory:', command, onLost: 'term', grace: 3_600_000, maxTime: 700 } as const
    const ended = new LeasedProcess(options).run(['a'], { ttl: '30s' })
    await granted
    await eventually('the command is up', () => existsSync(said) && readFileSync(said, 'utf8') === 'up\n')
    await clock.advance(700)
    expect(await whileTimePasses(clock, ended, 1)).toMatchObject({ code: 124, lost: false })
    expect(readFileSync(said, 'utf8')).toBe('up\nstopped\n')
  } finally {
    signals.stop()
    rmSync(folder, { recursive: true, force: true })
  }
})
