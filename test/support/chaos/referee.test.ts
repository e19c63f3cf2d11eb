/** The referee of the chaos tests: correct but unusual histories pass, and wrong ones violate the expected invariant. */
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

/** Records in order, each read at `by`. */
function log(...records: readonly (readonly [by: number, ...Partial<Event>[]])[]): Logged[] {
  return records.map(([by, ...events], i) => ({ index: i + 1, by, batch: `1:${i + 1}`, events: events as Event[] }))
}

function believes(t: number, who: string, lease: number, token: number, until = t + TTL): Note {
  return { t, who, kind: 'believes', lease, tokens: { x: token }, until }
}

function history(notes: readonly Note[], records: readonly Logged[] = []): History {
  return { notes: [...notes].sort((a, b) => a.t - b.t), log: records, gap: false }
}

const handOver = log([0, granted(1, 10)], [500, ended(1, 'released'), granted(2, 11)])
const lapse = log([0, granted(1, 10)], [1_100, ended(1, 'lapsed'), granted(2, 11)])

describe('the referee accepts', () => {
  const lawful: Readonly<Record<string, History>> = {
    'two holders in turn, the first having released': history(
      [believes(0, 'a', 1, 10), { t: 490, who: 'a', kind: 'releasing', lease: 1 }, believes(510, 'b', 2, 11)],
      handOver,
    ),
    'a killed holder whose lease ends before the next one begins': history([believes(0, 'a', 1, 10), believes(1_110, 'b', 2, 11)], lapse),
    'a paused holder that learns of its loss long afterwards': history(
      [
        believes(0, 'a', 1, 10),
        believes(1_110, 'b', 2, 11),
        { t: 3_000, who: 'a', kind: 'lost', lease: 1, code: 'LOST', message: 'stalled' },
      ],
      lapse,
    ),
    'a holder that did not run until its lease was over, and never used it': history(
      [believes(1_110, 'b', 2, 11), believes(1_200, 'a', 1, 10, 1_200), { t: 1_201, who: 'a', kind: 'releasing', lease: 1 }],
      lapse,
    ),
    'two holders of different resources at the same time': history(
      [believes(0, 'a', 1, 10), { t: 10, who: 'b', kind: 'believes', lease: 2, tokens: { y: 11 }, until: 900 }],
      log([0, granted(1, 10)], [5, granted(2, 11, 'y')]),
    ),
    'an UNKNOWN outcome that took effect, or did not': history(
      [
        { t: 1, who: 'a', kind: 'answered', resource: 'u/1', outcome: 'UNKNOWN' },
        { t: 2, who: 'a', kind: 'answered', resource: 'u/2', outcome: 'UNKNOWN' },
      ],
      log([0, granted(1, 10, 'u/1')]),
    ),
    'a batch that is in the log twice and was applied once': history(
      [],
      [...log([0, granted(1, 10)]), { index: 2, by: 5, batch: undefined, events: [] }],
    ),
    'replicas that have applied different numbers of records': history([
      { t: 1, who: 'a', kind: 'state', index: 5, hash: 'five' },
      { t: 1, who: 'b', kind: 'state', index: 6, hash: 'six' },
    ]),
  }
  test.each(Object.entries(lawful))('%s', (_, made) => expect(judge(made)).toEqual([]))
})

describe('the referee reports', () => {
  const unlawful: Readonly<Record<string, readonly [invariant: string, made: History]>> = {
    'two holders at the same time': ['S1', history([believes(0, 'a', 1, 10), believes(500, 'b', 2, 11)], handOver)],
    'a grant to another holder before an acknowledged renewal was over': [
      'S1',
      history(
        [believes(0, 'a', 1, 10), { t: 900, who: 'a', kind: 'renewed', lease: 1, sent: 890, ttl: TTL }, believes(1_110, 'b', 2, 11)],
        lapse,
      ),
    ],
    'a lease that is reported as held after its end': [
      'S1',
      history([believes(0, 'a', 1, 10), { t: 1_200, who: 'a', kind: 'held', lease: 1 }, believes(1_110, 'b', 2, 11)], lapse),
    ],
    'a lapse before an acknowledged renewal was over': [
      'S4',
      history([{ t: 510, who: 'a', kind: 'renewed', lease: 1, sent: 500, ttl: TTL }], lapse),
    ],
    'a renewal of a lease that had ended': [
      'S6',
      history([{ t: 1_510, who: 'a', kind: 'renewed', lease: 1, sent: 1_500, ttl: TTL }], lapse),
    ],
    'a grant to a lease that had ended': ['S6', history([], log([0, granted(1, 10)], [9, ended(1, 'released')], [12, granted(1, 11)]))],
    'a token that was granted before': ['S3', history([], log([0, granted(1, 10)], [9, ended(1, 'released')], [12, granted(2, 10)]))],
    'a held lease that is not in the log': ['S9', history([believes(0, 'a', 1, 10)], log([0, granted(1, 9)]))],
    'a granted probe that is not in the log': [
      'S9',
      history([{ t: 1, who: 'a', kind: 'answered', resource: 'u/1', outcome: 'granted', lease: 1, token: 10 }]),
    ],
    'an UNAVAILABLE probe that was granted': [
      'S12',
      history([{ t: 1, who: 'a', kind: 'answered', resource: 'u/1', outcome: 'UNAVAILABLE' }], log([0, granted(1, 10, 'u/1')])),
    ],
    'a probe that was granted twice': [
      'S11',
      history(
        [{ t: 1, who: 'a', kind: 'answered', resource: 'u/1', outcome: 'UNKNOWN' }],
        log([0, granted(1, 10, 'u/1')], [1, granted(2, 11, 'u/1')]),
      ),
    ],
    'a batch that was applied twice': ['S24', history([], log([0, granted(1, 10)]).concat(log([0, granted(2, 11)])))],
    'a replica that stopped for good': ['S24', history([{ t: 1, who: 'a', kind: 'stopped', code: 'DIVERGED', message: '' }])],
    'replicas that differ at the same record': [
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
