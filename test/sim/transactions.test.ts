/** The referee judges transactions, and entries without a lease. */
import { expect } from 'vitest'
import { cases, type RefereedWorld } from '../support/sim/refereed-world.ts'

/** A world in which entries under `kv` may belong to no lease, with the entry kv/a. */
function withEntry(c: RefereedWorld): void {
  c.policy('kv', { freeEntries: 9 })
  c.do({ kind: 'transaction', success: [{ key: 'kv/x', value: '1' }] })
}

cases(
  'S26',
  {
    'a transaction does what one of its branches says': c => {
      withEntry(c)
      const compare = [{ key: 'kv/x', field: 'version', is: 'equal', number: 1 }] as const
      const success = [
        { key: 'kv/x', value: '2' },
        { key: 'kv/y', delete: true },
      ]
      for (let i = 0; i < 2; i++) c.do({ kind: 'transaction', compare, success, failure: [{ key: 'kv/x', delete: true }] })
      c.referee.checkWhole()
    },
    'entries on a lease end with it, those on none do not': c => {
      withEntry(c)
      const lease = c.acquire('a', 'x')
      c.do({ kind: 'transaction', success: [{ key: 'kv/y', value: '2', lease }] })
      c.due(lease)
      c.referee.checkWhole()
      expect([...c.state.free.values()].map(({ key }) => key)).toEqual(['kv/x'])
    },
    'a transaction that no policy allows is refused and changes nothing': c => {
      withEntry(c)
      c.do({ kind: 'transaction', success: [{ key: 'elsewhere/a', value: '1' }] })
      c.referee.checkWhole()
    },
    'an entry on no lease is deleted by its key': c => {
      withEntry(c)
      c.do({ kind: 'delete', key: 'kv/x' })
      c.referee.checkWhole()
    },
    'amounts move from one account to another': c => {
      c.policy('kv', { freeEntries: 9 })
      c.do({ kind: 'transaction', success: ['kv/a', 'kv/b', 'kv/c'].map(key => ({ key, value: '100' })) })
      c.do({
        kind: 'transaction',
        success: [
          { key: 'kv/a', value: '90' },
          { key: 'kv/b', value: '110' },
        ],
      })
    },
  },
  {
    'a transaction says that its comparisons were true, and they were not': c => {
      withEntry(c)
      c.tamper = (_state, _events, outcome) => (outcome.kind === 'transacted' ? { ...outcome, succeeded: true } : undefined)
      c.do({ kind: 'transaction', compare: [{ key: 'kv/x', field: 'value', is: 'equal', value: '2' }] })
    },
    'a transaction carries out only one of its changes': c => {
      withEntry(c)
      c.tamper = (_state, events) => void events.splice(1)
      c.do({
        kind: 'transaction',
        success: [
          { key: 'kv/x', value: '2' },
          { key: 'kv/y', value: '2' },
        ],
      })
    },
    'an entry on no lease ends with a lease': c => {
      withEntry(c)
      const lease = c.acquire('a', 'x')
      c.tamper = (state, events) => {
        state.free.delete('kv/x')
        const { revision, at } = events[0]!
        events.push({ revision, type: 'deleted', lease: 0, key: 'kv/x', at })
      }
      c.release(lease)
    },
    'an entry is gone, and was not deleted': c => {
      withEntry(c)
      c.state.free.delete('kv/x')
      c.referee.checkWhole()
    },
    'an entry does not have the version that follows from its writes': c => {
      withEntry(c)
      c.state.free.set({ ...c.state.free.get('kv/x')!, version: 2 })
      c.referee.checkWhole()
    },
    'an amount is lost on its way': c => {
      c.policy('kv', { freeEntries: 9 })
      c.do({ kind: 'transaction', success: ['kv/a', 'kv/b', 'kv/c'].map(key => ({ key, value: '100' })) })
      c.do({ kind: 'transaction', success: [{ key: 'kv/a', value: '90' }] })
    },
  },
)
