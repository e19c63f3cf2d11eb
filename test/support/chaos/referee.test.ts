/** The referee of the chaos tests sees: lawful but odd histories pass, unlawful ones are called by their name. */
import { describe, expect, test } from 'vitest'
import type { Event } from '../../../src/kernel/event.ts'
import type { History, Logged, Note } from './history.ts'
import { judge } from './referee.ts'

const TTL = 1_000

function granted(lease: number, token: number, resource = 'x'): Partial<Event> {
  return { type: 'granted', lease, token, resource }
}

function ended(lease: number, type: 'released' | 'lapsed'): Partial<Event> {
  return { type, lease, resource: 'x' }
}

/** Entries one after another, each seen at `by`. */
function log(...entries: readonly (readonly [by: number, ...Partial<Event>[]])[]): Logged[] {
  return entries.map(([by, ...events], i) => ({ index: i + 1, by, entry: `1:${i + 1}`, events: events as Event[] }))
}

function believes(t: number, who: string, lease: number, token: number, until = t + TTL): Note {
  return { t, who, kind: 'believes', lease, tokens: { x: token }, until }
}

function history(notes: readonly Note[], entries: readonly Logged[] = []): History {
  return { notes: [...notes].sort((a, b) => a.t - b.t), log: entries, gap: false }
}

const handOver = log([0, granted(1, 10)], [500, ended(1, 'released'), granted(2, 11)])
const lapse = log([0, granted(1, 10)], [1_100, ended(1, 'lapsed'), granted(2, 11)])

describe('lawful', () => {
  const lawful: Readonly<Record<string, History>> = {
    'one after another, the first having let go': history(
      [believes(0, 'a', 1, 10), { t: 490, who: 'a', kind: 'releasing', lease: 1 }, believes(510, 'b', 2, 11)],
      handOver,
    ),
    'a killed holder whose time is over before the next one begins': history([believes(0, 'a', 1, 10), believes(1_110, 'b', 2, 11)], lapse),
    'a stopped holder that hears of its loss long after it': history(
      [
        believes(0, 'a', 1, 10),
        believes(1_110, 'b', 2, 11),
        { t: 3_000, who: 'a', kind: 'lost', lease: 1, code: 'LOST', message: 'stalled' },
      ],
      lapse,
    ),
    'a holder that was kept from running until the time of what it was given was over, and never believed in it': history(
      [believes(1_110, 'b', 2, 11), believes(1_200, 'a', 1, 10, 1_200), { t: 1_201, who: 'a', kind: 'releasing', lease: 1 }],
      lapse,
    ),
    'two on different resources at once': history(
      [believes(0, 'a', 1, 10), { t: 10, who: 'b', kind: 'believes', lease: 2, tokens: { y: 11 }, until: 900 }],
      log([0, granted(1, 10)], [5, granted(2, 11, 'y')]),
    ),
    'an unknown outcome that turns out to have been done, or not': history(
      [
        { t: 1, who: 'a', kind: 'told', resource: 'u/1', outcome: 'UNKNOWN' },
        { t: 2, who: 'a', kind: 'told', resource: 'u/2', outcome: 'UNKNOWN' },
      ],
      log([0, granted(1, 10, 'u/1')]),
    ),
    'an entry that stands twice and was applied once': history(
      [],
      [...log([0, granted(1, 10)]), { index: 2, by: 5, entry: undefined, events: [] }],
    ),
    'replicas that have come to different entries': history([
      { t: 1, who: 'a', kind: 'state', index: 5, hash: 'five' },
      { t: 1, who: 'b', kind: 'state', index: 6, hash: 'six' },
    ]),
  }
  test.each(Object.entries(lawful))('%s', (_, made) => expect(judge(made)).toEqual([]))
})

describe('unlawful', () => {
  const unlawful: Readonly<Record<string, readonly [invariant: string, made: History]>> = {
    'two who believe at once': ['S1', history([believes(0, 'a', 1, 10), believes(500, 'b', 2, 11)], handOver)],
    'a renewal that was acknowledged and not kept to': [
      'S1',
      history(
        [believes(0, 'a', 1, 10), { t: 900, who: 'a', kind: 'renewed', lease: 1, sent: 890, ttl: TTL }, believes(1_110, 'b', 2, 11)],
        lapse,
      ),
    ],
    'a holder that says it holds after its time': [
      'S1',
      history([believes(0, 'a', 1, 10), { t: 1_200, who: 'a', kind: 'held', lease: 1 }, believes(1_110, 'b', 2, 11)], lapse),
    ],
    'a lapse before an acknowledged renewal was over': [
      'S4',
      history([{ t: 510, who: 'a', kind: 'renewed', lease: 1, sent: 500, ttl: TTL }], lapse),
    ],
    'a renewal of what had ended': ['S6', history([{ t: 1_510, who: 'a', kind: 'renewed', lease: 1, sent: 1_500, ttl: TTL }], lapse)],
    'a grant to a lease that had ended': ['S6', history([], log([0, granted(1, 10)], [9, ended(1, 'released')], [12, granted(1, 11)]))],
    'a token that was given before': ['S3', history([], log([0, granted(1, 10)], [9, ended(1, 'released')], [12, granted(2, 10)]))],
    'a grant that the log does not know': ['S9', history([believes(0, 'a', 1, 10)], log([0, granted(1, 9)]))],
    'an answer that the log does not know': [
      'S9',
      history([{ t: 1, who: 'a', kind: 'told', resource: 'u/1', outcome: 'granted', lease: 1, token: 10 }]),
    ],
    'what was certainly not done, and was': [
      'S12',
      history([{ t: 1, who: 'a', kind: 'told', resource: 'u/1', outcome: 'UNAVAILABLE' }], log([0, granted(1, 10, 'u/1')])),
    ],
    'what was asked for once and granted twice': [
      'S11',
      history(
        [{ t: 1, who: 'a', kind: 'told', resource: 'u/1', outcome: 'UNKNOWN' }],
        log([0, granted(1, 10, 'u/1')], [1, granted(2, 11, 'u/1')]),
      ),
    ],
    'an entry applied twice': ['S24', history([], log([0, granted(1, 10)]).concat(log([0, granted(2, 11)])))],
    'a replica that stopped for good': ['S24', history([{ t: 1, who: 'a', kind: 'stopped', code: 'DIVERGED', message: '' }])],
    'replicas that differ at the same entry': [
      'S22',
      history([
        { t: 1, who: 'a', kind: 'state', index: 5, hash: 'one' },
        { t: 1, who: 'b', kind: 'state', index: 5, hash: 'other' },
      ]),
    ],
  }
  test.each(Object.entries(unlawful))('%s', (_, [invariant, made]) =>
    expect(judge(made).map(violation => violation.invariant)).toContain(invariant),
  )
})
