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
  {
    name: 'a second thread believes in its renewals for twice their term',
    file: 'src/holder/backup-renewer.js',
    find: '{ now: now + validity, uptime: uptime + validity }',
    put: '{ now: now + 2 * validity, uptime: uptime + 2 * validity }',
    expected: ['S1'],
    profiles: ['directed'],
  },
  {
    name: 'a lease that is never to be renewed is renewed',
    file: 'src/holder/heartbeat.js',
    find: 'return strategy;',
    put: "return strategy === 'never' ? 'half' : strategy;",
    expected: ['S5'],
    profiles,
  },
  {
    name: 'a face answers that its client leads without renewing the lease',
    file: 'src/face/kubernetes/lease-objects.js',
    find: 'if (held?.holder === holder && (await this.#renew(name, held.lease, ttl)))',
    put: 'if (held?.holder === holder)',
    expected: ['S1'],
    profiles,
  },
  {
    name: 'members that were passed on count for no account',
    file: 'src/kernel/rule/operate.js',
    find: '{ ...pool, shape: undefined }',
    put: "{ ...pool, account: '', shape: undefined }",
    expected: ['S14'],
    profiles: ['directed', 'combined'],
  },
  {
    name: 'a lease is preempted although its waiter has gone',
    file: 'src/kernel/rule/pool/preempt.js',
    find: 'if (pool.noticed.size === 0)',
    put: 'if (pool.noticed.size >= 0)',
    expected: ['S14'],
    profiles,
  },
]
