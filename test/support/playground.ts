/** Plays worlds of the playground under the eyes of the simulator's referee. */
import { Player } from '../../playground/player.ts'
import type { Act, Settings } from '../../playground/settings.ts'
import type { PlaygroundWorld } from '../../playground/world.ts'
import { Referee } from '../../sim/referee.ts'

export interface Judged {
  readonly world: PlaygroundWorld
  /** Violations of the lease. The referee does not look at the plain lock. */
  readonly violations: readonly string[]
  readonly commands: number
}

/** Plays until `length`, and returns what the referee says. */
export async function judged(settings: Partial<Settings>, acts: readonly Act[], length: number): Promise<Judged> {
  const violations: string[] = []
  const { referee, player } = watched(settings, acts, violations)
  await player.run(length)
  referee.checkWhole()
  return { world: player.world, violations, commands: referee.commands }
}

function watched(
  settings: Partial<Settings>,
  acts: readonly Act[],
  violations: string[],
): { readonly referee: Referee; readonly player: Player } {
  const judge: { referee?: Referee } = {}
  const player = new Player(settings, acts, {
    appended: (position, bytes, sentAt) => judge.referee!.observe(position, bytes, sentAt),
    lost: records => judge.referee!.lose(records),
    uses: belief => judge.referee!.beliefs.begins(belief),
    watches: belief => judge.referee!.beliefs.watch(belief),
    gives: lease => judge.referee!.givenUp.add(lease),
    wrote: (belief, name, result) => {
      const { token } = belief.grants[0]!
      const isAccepted = judge.referee!.beliefs.writes(belief, name, token)
      if (isAccepted !== (result !== 'refused')) violations.push(`S2: a write of ${belief.who} with token ${token} to ${name}: ${result}`)
    },
  })
  const { timeline } = player.world
  const { onViolation } = timeline
  timeline.onViolation = (invariant, message) => {
    violations.push(`${invariant}: ${message}`)
    onViolation(invariant, message)
  }
  judge.referee = new Referee(timeline)
  return { referee: judge.referee, player }
}
