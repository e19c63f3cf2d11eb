/** Known finding: a lease whose handle is collected. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { afterEach, expect, vi } from 'vitest'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { knownFinding } from '../support/known-finding.ts'

afterEach(() => vi.restoreAllMocks())

/** Runs the garbage collector until `done`, at most 50 times. */
async function collect(clock: { settle(): Promise<void> }, done: () => boolean): Promise<void> {
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as () => void
  for (let i = 0; i < 50 && !done(); i++) {
    gc()
    await clock.settle()
  }
}

knownFinding('collected-lease', 'a lease to which the program keeps no reference is held until it is released or lost', async claim => {
  vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const { leases, lessor, clock } = silentLessor()
  await using _ = leases
  const acquired = async () => {
    await leases.acquire('single-instance')
  }
  await acquired()
  const released = () => lessor.proposals.some(({ kind }) => kind === 'release')
  await collect(clock, released)
  const { held } = await leases.query('single-instance')
  await claim(() => expect(held).toHaveLength(1))
})

knownFinding('collected-lease', 'a lease of which the program keeps only the signal is held until it is released or lost', async claim => {
  vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
  const { leases, clock } = silentLessor()
  await using _ = leases
  const acquired = async () => {
    const { signal } = await leases.acquire('single-instance')
    return signal
  }
  const signal = await acquired()
  await collect(clock, () => signal.aborted)
  await claim(() => expect(signal.aborted).toBe(false))
})
