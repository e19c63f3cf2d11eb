/** The tables of a state that may be long, in a snapshot: item by item, so that they can be cut anywhere. */

import type { KeyLimits } from '../command.ts'
import { keyLimits, policyRules, savedKey } from '../command-table.ts'
import { addKey } from '../state/key-use.ts'
import { accountOf, poolOf } from '../state/pools.ts'
import { addFreeEntry, recordFence } from '../state/resources.ts'
import type { PoolAccount, State, Timer } from '../state.ts'
import { Damaged, type Reader, type Writer } from './bytes.ts'

const POLICIES = 7
const KEYS = 8
const FENCES = 9
const PROPOSERS = 10
const FLAPS = 11
const UPKEEP = 12
const ACCOUNTS = 13
const FREE_ENTRIES = 14
const GROUP_LIMITS = 16
/** The size of an item beside its name, in bytes. */
const ITEM_BYTES = 48
/** The size of the use of one step. */
const STEP_BYTES = 10

/** The chunk kinds of the tables, in the order in which one chunk holds them all. */
export const TABLE_KINDS: readonly number[] = [POLICIES, KEYS, FENCES, PROPOSERS, FLAPS, UPKEEP, ACCOUNTS, FREE_ENTRIES, GROUP_LIMITS]

/** A reader for one item of each table, in the order of `TABLE_KINDS`. */
export function tableReaders(state: State, from: Reader): readonly (() => void)[] {
  return [
    () => void state.policies.set(from.text(), policyRules.read(from)),
    () => addKey(state, savedKey.read(from)),
    () => recordFence(state, from.text(), from.uint(), from.uint()),
    () => void state.proposers.set(from.uint(), { seq: from.uint(), index: from.uint() }),
    () => {
      const key = from.text()
      const flap = { penalty: from.uint(), at: from.uint(), suppressed: from.bool() }
      state.flaps.set(key, flap)
      if (flap.suppressed) state.suppressed.add(key)
    },
    () => {
      const name = from.text()
      const [preserving, since, base, removed, at] = [from.bool(), from.uint(), from.uint(), from.uint(), from.uint()]
      state.upkeep.set(name, { preserving, since, base, removed, at })
    },
    () => {
      const account = accountOf(poolOf(state, from.text()), from.text())
      account.usage = from.uint()
      account.at = from.uint()
      account.week = from.list(() => ({ step: from.uint(), used: from.uint() }))
    },
    () => {
      const [key, value] = [from.text(), from.text()]
      addFreeEntry(state, { key, value, created: from.uint(), revision: from.uint(), version: from.uint(), by: from.uint() })
    },
    () => {
      const group = state.groups.get(from.text())
      if (group === undefined) throw new Damaged('limits of a group without keys')
      group.limits = keyLimits.read(from)
    },
  ]
}

interface Table {
  readonly kind: number
  /** Each item writes itself. */
  readonly items: readonly ((to: Writer) => void)[]
}

/** Copies the tables that may be long: later changes are not written. */
export function tablesOf(state: State): readonly Table[] {
  return [
    {
      kind: POLICIES,
      items: [...state.policies].map(([prefix, rules]) => (to: Writer) => {
        to.text(prefix)
        policyRules.write(to, rules)
      }),
    },
    {
      kind: KEYS,
      items: [...state.keys.values()].map(key => (to: Writer) => savedKey.write(to, key)),
    },
    {
      kind: FENCES,
      items: [...state.fences].map(([name, token]) => (to: Writer) => {
        to.text(name)
        to.uint(token)
        to.uint(state.fencedBy.get(name) ?? 0)
      }),
    },
    {
      kind: PROPOSERS,
      items: [...state.proposers].map(([proposer, { seq, index }]) => (to: Writer) => {
        to.uint(proposer)
        to.uint(seq)
        to.uint(index)
      }),
    },
    {
      kind: FLAPS,
      items: [...state.flaps].map(([key, { penalty, at, suppressed }]) => (to: Writer) => {
        to.text(key)
        to.uint(penalty)
        to.uint(at)
        to.bool(suppressed)
      }),
    },
    {
      kind: UPKEEP,
      items: [...state.upkeep].map(([name, { preserving, since, base, removed, at }]) => (to: Writer) => {
        to.text(name)
        to.bool(preserving)
        for (const n of [since, base, removed, at]) to.uint(n)
      }),
    },
    {
      kind: ACCOUNTS,
      items: usages(state).map(({ pool, account: { name, usage, at, week } }) => (to: Writer) => {
        to.text(pool)
        to.text(name)
        to.uint(usage)
        to.uint(at)
        to.list(week, ({ step, used }) => {
          to.uint(step)
          to.uint(used)
        })
      }),
    },
    {
      kind: FREE_ENTRIES,
      items: [...state.free.values()].map(({ key, value, created, revision, version, by }) => (to: Writer) => {
        to.text(key)
        to.text(value)
        for (const n of [created, revision, version, by]) to.uint(n)
      }),
    },
    {
      kind: GROUP_LIMITS,
      items: groupLimits(state).map(([name, limits]) => (to: Writer) => {
        to.text(name)
        keyLimits.write(to, limits)
      }),
    },
  ]
}

/** By name: the order of pools and accounts differs between replicas. */
function usages({ pools }: State): { readonly pool: string; readonly account: PoolAccount }[] {
  const rows = [...pools.values()].flatMap(({ name: pool, accounts }) =>
    [...accounts.values()].flatMap(account => (account.usage + account.held + account.week.length === 0 ? [] : [{ pool, account }])),
  )
  return rows.sort((a, b) => (a.pool === b.pool ? (a.account.name < b.account.name ? -1 : 1) : a.pool < b.pool ? -1 : 1))
}

/** By name: replicas may have learned of the groups in another order. */
function groupLimits({ groups }: State): (readonly [name: string, limits: KeyLimits])[] {
  const rows = [...groups].flatMap(([name, { limits }]) => (limits === undefined ? [] : [[name, limits] as const]))
  return rows.sort((a, b) => (a[0] < b[0] ? -1 : 1))
}

/** An estimate of their size in bytes, rather too high than too low. */
export function sizeOf({ keys, policies, fences, flaps, upkeep, proposers, pools, free }: State): number {
  let size = ITEM_BYTES * (4 * policies.size + proposers.size + free.size) + free.under('').bytes
  for (const { name, allow, accounts = [], holders = [], group = '' } of keys.values()) {
    size += name.length + 2 * group.length + 6 * ITEM_BYTES
    for (const bound of [...accounts, ...holders]) size += bound.length + 2
    for (const { prefix } of allow) size += prefix.length + 2
  }
  for (const { name, accounts } of pools.values())
    for (const account of accounts.values()) size += name.length + account.name.length + ITEM_BYTES + account.week.length * STEP_BYTES
  for (const names of [policies, fences, flaps, upkeep]) for (const name of names.keys()) size += name.length + ITEM_BYTES
  return size
}

export function writeTimer(to: Writer, timer: Timer | undefined): void {
  to.bool(timer !== undefined)
  if (timer === undefined) return
  for (const n of [timer.duration, timer.epoch, timer.run, timer.aged]) to.uint(n)
}

export function readTimer(from: Reader): Timer | undefined {
  if (!from.bool()) return undefined
  return { duration: from.uint(), epoch: from.uint(), run: from.uint(), aged: from.uint() }
}
