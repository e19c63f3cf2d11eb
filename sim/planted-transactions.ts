/** Mistakes of transactions and of entries without a lease (see planted.ts). */
import type { Planted } from './planted-mistake.ts'

const profiles = ['transactions'] as const

export const TRANSACTION_BUGS: readonly Planted[] = [
  {
    name: 'a transaction does not look at its comparisons',
    file: 'src/kernel/rule/transaction.js',
    find: 'const succeeded = compare',
    put: 'const succeeded = true || compare',
    expected: ['S26'],
    profiles,
  },
  {
    name: 'one true comparison is enough for a transaction',
    file: 'src/kernel/rule/transaction.js',
    find: 'compare.every(comparison => holds(state, comparison))',
    put: 'compare.some(comparison => holds(state, comparison))',
    expected: ['S26'],
    profiles,
  },
  {
    name: 'a transaction carries out its first change only',
    file: 'src/kernel/rule/transaction.js',
    find: 'for (const change of changes) {',
    put: 'for (const change of changes.slice(0, 1)) {',
    expected: ['S26'],
    profiles,
  },
  {
    name: 'an entry that is written again keeps its revision',
    file: 'src/kernel/rule/transaction.js',
    find: 'const entry = { key, value, revision: state.revision + 1, ...written(state, key), by };',
    put: 'const entry = { key, value, revision: written(state, key).created, ...written(state, key), by };',
    expected: ['S26'],
    profiles,
  },
  {
    name: 'a snapshot leaves out the entries without a lease',
    file: 'src/kernel/codec/saved-table.js',
    find: 'items: [...state.free.values()].map(',
    put: 'items: [...state.free.values()].slice(0, 0).map(',
    expected: ['S22', 'S24', 'S26'],
    profiles,
  },
]
