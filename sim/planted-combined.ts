/** Mistakes that show only where features meet on one lease (see planted.ts). */
import type { Planted } from './planted-mistake.ts'

const profiles = ['combined'] as const

export const COMBINED_BUGS: readonly Planted[] = [
  {
    name: 'a transferred lease loses its grace period',
    file: 'src/kernel/rule/operate.js',
    find: 'Object.assign(extrasOf(received), { maxLife, grace })',
    put: 'Object.assign(extrasOf(received), { maxLife })',
    expected: ['S14'],
    profiles,
  },
  {
    name: 'a transferred lease leaves its parent',
    file: 'src/kernel/rule/operate.js',
    find: 'addChild(state, parent, received);',
    put: '',
    expected: ['S14', 'S8'],
    profiles,
  },
  {
    name: 'a lock-delay is over at once',
    file: 'src/kernel/rule/end.js',
    find: 'restartTerm(state, effects, lease, delay);',
    put: 'restartTerm(state, effects, lease, 1);',
    expected: ['S4'],
    profiles,
  },
  {
    name: 'a limited life is cut to a third',
    file: 'src/kernel/rule/queue.js',
    find: 'startTimer(state, effects, lease, CAP, maxLife)',
    put: 'startTimer(state, effects, lease, CAP, Math.ceil(maxLife / 3))',
    expected: ['S4'],
    profiles,
  },
]
