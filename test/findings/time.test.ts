/** Known findings: terms, renewals and durations. */
import { expect } from 'vitest'
import type { Command } from '../../src/kernel/command.ts'
import type { Outcome } from '../../src/kernel/outcome.ts'
import { BINS, EDGES } from '../../src/kernel/state/durations.ts'
import { timerId, timerOf } from '../../src/kernel/state/timers.ts'
import { TERM } from '../../src/kernel/state.ts'
import { World } from '../support/kernel/world.ts'
import { knownFinding } from '../support/known-finding.ts'


knownFinding(
  'learned-grace',
  'the duration learned from a lapse ends soon after the last renewal, with a grace period as without',
  async claim => {
    const learned = (grace: number): number => {
      const world = new World()
      const done = (command: Command, wall: number): Outcome => {
        const applied = world.entry([command], { wall })
        if (applied.kind !== 'applied') throw new Error(applied.kind)
        return applied.outcomes[0]!
      }
      const labels = [['learn', 'jobs']] as const
      const began = 1_000_000
      const term = 600_000
      const granted = done(
        { kind: 'acquire', holder: 'h', ttl: term, wants: [{ resource: 'jobs/a' }], labels, ...(grace > 0 && { grace }) },
        began,
      )
      expect(granted.kind).toBe('granted')
      const { lease } = granted as { lease: number }
      done({ kind: 'renew', leases: [lease] }, began) // then the holder dies
      const due = (wall: number) => {
        const { epoch } = timerOf(world.lease(lease)!, TERM)!
        done({ kind: 'due', timer: timerId(world.lease(lease)!, TERM), epoch }, wall)
      }
      due(began + term)
      if (grace > 0) due(began + term + grace)
      expect(world.lease(lease)).toBeUndefined()
      const { sums } = world.state.durations.get('jobs')!
      const bin = sums.findIndex(sum => sum !== undefined)
      return EDGES[bin % BINS]! + sums[bin]!
    }
    expect(learned(0)).toBe(150_000)
    const withGrace = learned(10_000)
    await claim(() => expect(withGrace).toBeLessThan(200_000))
  },
)
