/** Mistakes of agents: of the code that keeps a session, explains losses and yields to waiters. */
import type { Planted } from './planted-mistake.ts'

const profiles = ['agents'] as const

export const AGENT_BUGS: readonly Planted[] = [
  {
    name: 'an agent is told of claims from its memory, not from the log',
    file: 'src/agent/claim-book.js',
    find: 'tree.claims.filter(({ lease }) => !gone.has(lease))',
    put: '[...new Map([...this.#claims.values(), ...tree.claims].map(claim => [claim.lease, claim])).values()]',
    expected: ['A1'],
    profiles,
  },
  {
    name: 'a loss is forgotten if the request that explains it fails',
    file: 'src/agent/claim-book.js',
    find: '            await this.#explain(ended);\n            this.#unexplained.shift();',
    put: '            this.#unexplained.shift();\n            await this.#explain(ended);',
    expected: ['A3'],
    profiles,
  },
  {
    name: 'an agent that is active yields',
    file: 'src/agent/claim-book.js',
    find: 'if (!isIdle(tree.session, markOf(tree.view)))',
    put: 'if (false)',
    expected: ['A2'],
    profiles,
  },
  {
    name: 'an idle agent yields although nothing waits',
    file: 'src/agent/claim-book.js',
    find: `if (!claim.held || !claim.recalled)
                    continue;
                const waiter = await this.#waiterFor(claim);
                if (waiter === undefined)
                    continue;`,
    put: `if (!claim.held)
                    continue;
                const waiter = (await this.#waiterFor(claim)) ?? 'another';`,
    expected: ['A2'],
    profiles,
  },
  {
    name: 'an idle agent does not yield',
    file: 'src/agent/claim-book.js',
    find: 'if (!isIdle(tree.session, markOf(tree.view)))',
    put: 'if (true)',
    expected: ['A5'],
    profiles,
  },
  {
    name: 'the session of an agent lasts as long as its cap',
    file: 'src/agent/session.js',
    find: "kind: 'acquire',\n        holder: name,\n        ttl,",
    put: "kind: 'acquire',\n        holder: name,\n        ttl: ttl * 100,",
    expected: ['A4'],
    profiles,
  },
  {
    name: 'activity that another process of the agent reports is not seen',
    file: 'src/agent/activity.js',
    find: 'this.note(readMark(value)?.underWay);',
    put: '',
    expected: ['A2'],
    profiles,
  },
]
