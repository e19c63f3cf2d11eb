/** The settings of a world, and the acts that change it. Both are plain numbers, so that a link can hold them. */

/** The programs of the processes: contend for one lock, stand for election, keep a session with its family, or take members of a pool. */
export const PROGRAMS = ['lock', 'election', 'session', 'pool'] as const
export type Program = (typeof PROGRAMS)[number]

interface Range {
  readonly low: number
  readonly high: number
  readonly initial: number
  /** Shown beside the control. */
  readonly label: string
  readonly unit: 's' | '' | 'on'
}

/** Times are in ms. */
export const SETTINGS = {
  processes: { low: 1, high: 50, initial: 3, label: 'processes', unit: '' },
  program: { low: 0, high: PROGRAMS.length - 1, initial: 0, label: 'program', unit: '' },
  ttl: { low: 1_000, high: 60_000, initial: 6_000, label: 'ttl', unit: 's' },
  grace: { low: 0, high: 30_000, initial: 0, label: 'grace', unit: 's' },
  lockDelay: { low: 0, high: 30_000, initial: 0, label: 'lock-delay', unit: 's' },
  fencing: { low: 0, high: 1, initial: 1, label: 'fencing', unit: 'on' },
  plain: { low: 0, high: 1, initial: 1, label: 'plain lock', unit: 'on' },
  /** The ttl of the plain lock, as it was guessed. */
  plainTtl: { low: 1_000, high: 60_000, initial: 6_000, label: 'its ttl', unit: 's' },
  /** The holder of the plain lock extends it at a third of its ttl. */
  extend: { low: 0, high: 1, initial: 1, label: 'extended', unit: 'on' },
  delay: { low: 10, high: 800, initial: 200, label: 'delay', unit: 's' },
  /** The work before each write. */
  work: { low: 200, high: 10_000, initial: 900, label: 'work', unit: 's' },
  /** Percent of messages to and from the stores. */
  loss: { low: 0, high: 50, initial: 0, label: 'lost messages, %', unit: '' },
} as const satisfies Readonly<Record<string, Range>>

export type SettingName = keyof typeof SETTINGS
export type Settings = Readonly<Record<SettingName, number>>

export const INITIAL = Object.fromEntries(Object.entries(SETTINGS).map(([name, { initial }]) => [name, initial])) as Settings

interface ActKind {
  /** It names a process. */
  readonly who: boolean
  /** It has an amount, within these limits. */
  readonly amount?: readonly [low: number, high: number]
  /** The picture names it so; `{a}` is the process, `{n}` the amount, `{s}` the amount in seconds, `{b}` the process that the amount names. */
  readonly text: string
}

export const ACTS = {
  acquire: { who: true, text: '{a} wants the resource' },
  release: { who: true, text: '{a} gives up' },
  transfer: { who: true, amount: [0, 49], text: '{a} hands over to {b}' },
  revoke: { who: true, text: 'an operator revokes the leases of {a}' },
  pause: { who: true, amount: [100, 120_000], text: '{a} stands still for {s} s' },
  suspend: { who: true, amount: [100, 120_000], text: 'the machine of {a} sleeps for {s} s' },
  kill: { who: true, text: '{a} is killed' },
  restart: { who: true, text: '{a} starts again' },
  cut: { who: true, text: '{a} is cut off from the stores' },
  heal: { who: true, text: 'the link of {a} is healed' },
  fast: { who: true, amount: [-50, 50], text: 'the clock of {a} runs {n} % fast' },
  jump: { who: true, amount: [-3_600_000, 3_600_000], text: 'the wall clock of {a} jumps by {s} s' },
  stopLog: { who: false, text: 'the stores stop answering' },
  startLog: { who: false, text: 'the stores answer again' },
  loseTail: { who: false, amount: [1, 1_000], text: 'the stores fail over: the log loses {n} records, the plain lock its key' },
  ttl: { who: false, amount: [1_000, 60_000], text: 'ttl {s} s, from the next lease on' },
  grace: { who: false, amount: [0, 30_000], text: 'grace {s} s, by a policy' },
  lockDelay: { who: false, amount: [0, 30_000], text: 'lock-delay {s} s, by a policy' },
  fencing: { who: false, amount: [0, 1], text: 'fencing {n}' },
  delay: { who: false, amount: [10, 800], text: 'messages take {s} s' },
  loss: { who: false, amount: [0, 50], text: '{n} % of the messages are lost' },
} as const satisfies Readonly<Record<string, ActKind>>

export type ActName = keyof typeof ACTS

export interface Act {
  /** True time, ms. */
  readonly at: number
  readonly act: ActName
  /** The number of a process. */
  readonly who?: number
  readonly amount?: number
}

/** The name of a process by its number: a to z, then a2. */
export function processName(number: number): string {
  const letter = String.fromCharCode(97 + (number % 26))
  return number < 26 ? letter : `${letter}${Math.floor(number / 26) + 1}`
}

export function actText({ act, who = 0, amount = 0 }: Act): string {
  if (act === 'fencing') return amount === 1 ? 'the resource checks tokens' : 'the resource checks no tokens'
  return ACTS[act].text
    .replace('{a}', processName(who))
    .replace('{b}', processName(amount))
    .replace('{n}', `${amount}`)
    .replace('{s}', `${amount / 1_000}`)
}
