/** A command under a lease, where a real process is too quick to be met: the moment in which the command is being started. */
import { expect, test } from 'vitest'
import { Errand, type ErrandOptions } from '../src/cli/errand.ts'
import { Hearing } from '../src/cli/hearing.ts'
import { Output } from '../src/cli/output.ts'
import { LeaseError } from '../src/errors.ts'
import { silentLessor } from '../src/testing/in-memory.ts'

test('a command whose lease is lost while it is being started is ended as any other', { timeout: 60_000 }, async () => {
  const { leases, lessor } = silentLessor()
  const hearing = new Hearing()
  const notes: string[] = []
  const out = new Output({ json: false })
  out.note = text => void notes.push(text)
  try {
    const options: ErrandOptions = {
      leases,
      hearing,
      out,
      // Asked for when the lease is held and there is no command yet.
      get url() {
        lessor.end(new LeaseError('DIVERGED', 'the log lost entries'))
        return 'memory:'
      },
      command: ['sleep', '40'],
      onLost: 'term',
      grace: 1_000,
    }
    const began = performance.now()
    expect(await new Errand(options).run('a', { ttl: '30s' })).toEqual({ code: 79, lost: true })
    expect(performance.now() - began).toBeLessThan(30_000)
    expect(notes.join()).toMatch(/a \(lease \d+\) is lost: the log lost entries\. The command is ended: TERM now/)
  } finally {
    hearing.stop()
  }
})
