/** A key as administrators see it: what it may do, its limits, and what it and its group have. */
import type { KeyLimits } from '../kernel/command.ts'
import { copyOf } from '../kernel/copy.ts'
import { type KeyUse, noUse } from '../kernel/state/key-use.ts'
import type { ApiKey, State } from '../kernel/state.ts'

export interface KeyView extends ApiKey {
  /** What it has at present. */
  readonly use: Readonly<KeyUse>
  /** Of its group: limits for all keys of the group together, if there are any, and what they have. */
  readonly groupLimits?: KeyLimits
  readonly groupUse?: Readonly<KeyUse>
}

export function keyViews(state: State): readonly KeyView[] {
  return [...state.keys.values()].map(key => {
    const group = key.group === undefined ? undefined : state.groups.get(key.group)!
    return copyOf({
      ...key,
      use: state.keyUse.get(key.id) ?? noUse(),
      ...(group !== undefined && { groupUse: group.use, ...(group.limits !== undefined && { groupLimits: group.limits }) }),
    })
  })
}
