import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { chooseVictims } from '../../../../src/kernel/rule/pool/victims.ts'

interface Lease {
  readonly token: number
  readonly units: number
  /** The host that its units are on. */
  readonly host: number
}

const need = (units: number) => (ended: ReadonlySet<Lease>) => [...ended].reduce((sum, lease) => sum + lease.units, 0) >= units
/** All units on one host. */
const near = (units: number) => (ended: ReadonlySet<Lease>) =>
  [0, 1, 2].some(host => need(units)(new Set([...ended].filter(lease => lease.host === host))))
const leases = (...units: readonly number[]): Lease[] => units.map((n, i) => ({ token: i + 1, units: n, host: i % 3 }))
const tokens = (chosen: readonly Lease[] | undefined) => chosen?.map(({ token }) => token)

describe('victims', () => {
  test('are the fewest that suffice, and of those the youngest', () => {
    expect(tokens(chooseVictims(leases(1, 1, 1, 1), need(2)))).toEqual([4, 3])
    expect(tokens(chooseVictims(leases(1, 4, 1, 1, 1), need(4)))).toEqual([2])
    expect(tokens(chooseVictims(leases(2, 2, 1, 1), need(3)))).toEqual([4, 2])
  })

  test('are none if the waiter fits already, and undefined if all of them do not suffice', () => {
    expect(chooseVictims(leases(1, 1), need(0))).toEqual([])
    expect(chooseVictims(leases(1, 1), need(3))).toBeUndefined()
    expect(chooseVictims([], need(1))).toBeUndefined()
  })

  test('among many candidates, one large lease is preferred to many young ones', () => {
    expect(tokens(chooseVictims(leases(...Array.from({ length: 50 }, (_, i) => (i === 7 ? 20 : 1))), need(20)))).toEqual([8])
  })

  const list = fc.array(fc.record({ units: fc.integer({ min: 1, max: 4 }), host: fc.nat(2) }), { maxLength: 40 })

  test('suffice, and none of them can be left out, whatever the waiter needs', () => {
    fc.assert(
      fc.property(list, fc.integer({ min: 1, max: 30 }), fc.boolean(), (given, units, together) => {
        const all = given.map((lease, i) => ({ ...lease, token: i + 1 }))
        const suffices = together ? near(units) : need(units)
        const chosen = chooseVictims(all, suffices)
        if (chosen === undefined) {
          expect(suffices(new Set(all))).toBe(false)
          return
        }
        expect(suffices(new Set(chosen))).toBe(true)
        for (const lease of chosen) expect(suffices(new Set(chosen.filter(other => other !== lease)))).toBe(false)
        expect(chosen.map(({ token }) => token)).toEqual(chosen.map(({ token }) => token).sort((a, b) => b - a))
      }),
      { numRuns: 500 },
    )
  })

  test('are as few as possible where there are at most eight candidates', () => {
    fc.assert(
      fc.property(
        fc.array(fc.record({ units: fc.integer({ min: 1, max: 4 }), host: fc.nat(2) }), { maxLength: 8 }),
        fc.nat(12),
        (given, units) => {
          const all = given.map((lease, i) => ({ ...lease, token: i + 1 }))
          const chosen = chooseVictims(all, near(units))
          let fewest = Number.POSITIVE_INFINITY
          for (let set = 0; set < 2 ** all.length; set++) {
            const some = all.filter((_, i) => (set >> i) & 1)
            if (near(units)(new Set(some))) fewest = Math.min(fewest, some.length)
          }
          expect(chosen?.length ?? Number.POSITIVE_INFINITY).toBe(fewest)
        },
      ),
      { numRuns: 300 },
    )
  })

  test('of a thousand candidates are found with few checks', () => {
    let checks = 0
    const all = leases(...Array.from({ length: 1_000 }, () => 1))
    const chosen = chooseVictims(all, ended => {
      checks++
      return need(5)(ended)
    })
    expect(tokens(chosen)).toEqual([1_000, 999, 998, 997, 996])
    expect(checks).toBeLessThan(150)
  })
})
