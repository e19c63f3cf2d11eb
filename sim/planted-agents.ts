/** Mistakes of agents: of the code that keeps a session, explains losses and yields to waiters. */
import type { Planted } from './planted-mistake.ts'

const profiles = ['agents'] as const

export const AGENT_BUGS: readonly Planted[] = [
  {
    name: 'an agent that is active yields',
    file: 'src/agent/claim-book.js',
    find: 'const isStillIdle = () => isIdle(session, markOf(view));',
    put: 'const isStillIdle = () => true;',
    expected: ['A2'],
    profiles,
  },
]
