/** The referee judges which incarnation may write and delete an entry. */
import { expect } from 'vitest'
import { cases } from '../support/sim/refereed-world.ts'

cases(
  'S18',
  {
    'a newer incarnation takes over an entry': c => {
      c.register('a', 'e')
      c.register('a', 'e')
    },
    'the same incarnation writes again': c => {
      const lease = c.register('a', 'e')
      c.do({ kind: 'put', lease, key: 'e', value: 'w' })
      c.register('a', 'e', lease)
    },
    'an incarnation that was replaced is refused': c => {
      const old = c.register('a', 'e')
      c.register('a', 'e')
      expect(c.register('a', 'e', old)).toBe(0)
    },
    'the former lease of an entry ends, and the entry stays': c => {
      const old = c.register('a', 'e')
      c.register('a', 'e')
      c.due(old)
      expect(c.state.entries.has('e')).toBe(true)
    },
    'an older incarnation registers after its successor has gone': c => {
      const old = c.register('a', 'e')
      c.release(c.register('a', 'e'))
      expect(c.register('a', 'e', old)).not.toBe(0)
    },
    'a late delete names the wrong lease and changes nothing': c => {
      const old = c.register('a', 'e')
      c.register('a', 'e')
      expect(c.do({ kind: 'delete', key: 'e', lease: old })).toMatchObject({ code: 'STALE' })
    },
  },
  {
    'an older incarnation overwrites the entry of a newer one': c => {
      const old = c.register('a', 'e')
      c.register('a', 'e')
      c.state.entries.delete('e')
      c.register('a', 'e', old)
    },
    'an older incarnation deletes the entry of a newer one': c => {
      c.register('a', 'e')
      const young = c.register('a', 'e')
      c.tamper = (_, events) => {
        events.push({ revision: c.state.revision, type: 'deleted', lease: young, key: 'e', at: 0 })
        return undefined
      }
      c.do({ kind: 'delete', key: 'e', lease: 1 })
    },
    'an entry ends with a lease that it does not belong to': c => {
      const old = c.register('a', 'e')
      const young = c.register('a', 'e')
      c.tamper = (_, events) => {
        events.push({ revision: c.state.revision, type: 'deleted', lease: young, key: 'e', at: 0 })
        return undefined
      }
      c.due(old)
    },
  },
)
