/** Names the holders of resources, for error messages. */
import type { Lessor } from '../lessor.ts'

/** The most resources that are looked at, and holders that are named. */
const MAX_NAMED = 8

/** The holders of these resources, as far as the caller may see them. */
export async function holdersOf(
  lessor: Pick<Lessor, 'read'>,
  resources: readonly string[],
  signal?: AbortSignal,
): Promise<readonly string[]> {
  const views = await Promise.all(
    resources
      .slice(0, MAX_NAMED)
      .map(resource => lessor.read({ kind: 'resource', resource, waiters: 0, holders: MAX_NAMED }, signal === undefined ? {} : { signal })),
  )
  const names = new Set(views.flatMap(({ value }) => value.grants.map(({ holder }) => holder)))
  return [...names].slice(0, MAX_NAMED)
}
