/** A lessor that decides nothing and answers at once, for tests that only want to know what a face makes of a request: a million of them in a minute. */
import type { FaceLessor } from '../../src/face/face.ts'
import type { Command } from '../../src/kernel/command.ts'
import type { Outcome } from '../../src/kernel/outcome.ts'
import { REASONS, type Reason } from '../../src/kernel/reason.ts'
import type { Query, QueryResults, View } from '../../src/lessor.ts'
import type { Dice } from './resp-mutation.ts'

/** One of its answers in four is a refusal. */
const REFUSALS = ['held', 'gone', 'malformed', 'forbidden-lease', 'too-many-leases', 'no-match'] as const satisfies readonly Reason[]

export function instantLessor(dice: Dice): FaceLessor {
  let revision = 1
  return {
    submit(command, _options, completion) {
      revision++
      completion.settle(dice.below(4) === 0 ? refused(dice.of(REFUSALS), revision) : outcomeOf(command, revision))
    },
    read: async <K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>) =>
      ({ revision, value: (EMPTY as Record<string, unknown>)[query.kind] }) as unknown as View<K>,
    async *watch() {}, // nothing ever changes
  }
}

function refused(reason: (typeof REFUSALS)[number], revision: number): Outcome {
  return { kind: 'refused', revision, code: REASONS[reason].code, reason, facts: { holder: 'ann', lease: 7 } }
}

function outcomeOf(command: Command, revision: number): Outcome {
  switch (command.kind) {
    case 'acquire': {
      const resources = command.wants.map(({ resource }) => resource)
      const tokens = resources.map(() => revision)
      return { kind: 'granted', revision, lease: revision, incarnation: 1, ttl: Math.min(command.ttl, 30_000), resources, tokens }
    }
    case 'renew':
      return { kind: 'renewed', revision, ttls: command.leases.map(() => command.ttl ?? 30_000) }
    case 'transaction':
      return { kind: 'transacted', revision, succeeded: (command.compare ?? []).length === 0 || revision % 3 > 0 }
    default:
      return { kind: 'done', revision }
  }
}

const EMPTY: Partial<QueryResults> = {
  summary: {
    ...{ rules: 1, leases: 0, waiting: 0, suspect: 0, frozen: 0, resources: 0, entries: 0, keys: 0, nextToken: 1, quiet: false },
  },
  leases: [],
  resource: { resource: 'r', capacity: 1, grants: [], queue: [], fence: 0 },
  resources: [],
  entries: [],
  services: [],
}
