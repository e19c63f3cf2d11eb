/** Extending: a lease that holds members of a pool may live longer, unless another lease needs them. */
import type { Extend } from '../../command.ts'
import type { Outcome } from '../../outcome.ts'
import type { State } from '../../state.ts'
import type { Effects } from '../effects.ts'
import { invalid } from '../refuse.ts'
import { versionRefusal } from '../version.ts'

export function extend(state: State, _effects: Effects, command: Extend, _key: number): Outcome {
  return versionRefusal(state, command) ?? invalid(state, 'leases cannot be extended yet')
}
