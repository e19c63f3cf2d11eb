/** The ready scenes: what happens, in at most 80 words, and what each claims to show. Tests play all of them and check the claims. */
import type { Side } from './history.ts'
import type { Act, Settings } from './settings.ts'
import type { PlaygroundWorld } from './world.ts'

/** A claim of a scene, and how to see that it is true. It is judged when the scene is over. */
export interface Claim {
  readonly text: string
  readonly holds: (world: PlaygroundWorld) => boolean
}

export interface Scene {
  readonly name: string
  readonly title: string
  readonly text: string
  readonly settings: Partial<Settings>
  readonly acts: readonly Act[]
  /** The claims are judged at this time, ms. The world goes on after it. */
  readonly length: number
  readonly claims: readonly Claim[]
}

const oneHolder: Claim = {
  text: 'No two processes ever held the lease at the same time.',
  holds: world => world.verdicts.every(({ side }) => side !== 'lease') && world.history.count('lease', 'overwrote') === 0,
}

const twoHolders: Claim = {
  text: 'Two processes held the plain lock at the same time.',
  holds: world => world.verdicts.some(({ side, invariant }) => side === 'plain' && invariant === 'S1'),
}

/** In this order, the processes held something on a side. */
function heldInTurn(world: PlaygroundWorld, side: Side, label?: string): string {
  const lanes = world.history.tenures.filter(tenure => tenure.side === side && (label === undefined || tenure.label === label))
  return lanes.map(({ lane }) => lane).join(' ')
}

function heldAt(world: PlaygroundWorld, lane: string, side: Side): number {
  return world.history.tenures.find(tenure => tenure.lane === lane && tenure.side === side)?.at ?? Number.POSITIVE_INFINITY
}

/** The first process acquires, and the others queue one after another. */
function inTurn(...whos: readonly number[]): Act[] {
  return whos.map((who, i) => ({ at: 500 + i * 1_000, act: 'acquire', who }))
}

export const SCENES: readonly Scene[] = [
  {
    name: 'zombie-writer',
    title: 'Zombie writer',
    text: 'Process a is paused for 12 s in the middle of its work, longer than its ttl. Process b gets the lock and works. Then a wakes up and finishes its write. The resource refuses it, because it has seen the newer token of b; and a learns from its own clock that its lease is over. The plain lock has no token: the late write is accepted and overwrites the work of b.',
    settings: { processes: 2 },
    acts: [...inTurn(0, 1), { at: 6_000, act: 'pause', who: 0, amount: 12_000 }],
    length: 24_000,
    claims: [
      oneHolder,
      { text: 'The resource refused the late write under the lease.', holds: world => world.history.count('lease', 'refused') === 1 },
      { text: 'The late write under the plain lock overwrote newer work.', holds: world => world.history.count('plain', 'overwrote') > 0 },
    ],
  },
  {
    name: 'split-brain',
    title: 'Split brain',
    text: 'Process a leads. Its link to the stores is cut, but it still reaches the resource. It cannot renew, and stops by its own clock before b can be elected: its term counts from before the request was sent. The holder of the plain lock hears nothing, takes that for good news and goes on, while b has the lock as well.',
    settings: { processes: 2, program: 1 },
    acts: [...inTurn(0, 1), { at: 6_000, act: 'cut', who: 0 }, { at: 22_000, act: 'heal', who: 0 }],
    length: 28_000,
    claims: [
      oneHolder,
      { text: 'Process b was elected after a had stopped.', holds: world => heldInTurn(world, 'lease') === 'a b' },
      twoHolders,
    ],
  },
  {
    name: 'orphaned-lock',
    title: 'Orphaned lock',
    text: 'Process a is killed while it holds the lock. Its lease is renewed while it lives, so a ttl of 6 s is enough, however long the work takes: b continues soon. The ttl of the plain lock is not extended and has to cover the longest work, here 30 s. For the rest of that time nothing is done.',
    settings: { processes: 2, plainTtl: 30_000, extend: 0 },
    acts: [...inTurn(0, 1), { at: 7_000, act: 'kill', who: 0 }],
    length: 36_000,
    claims: [
      oneHolder,
      { text: 'Process b got the lease within 10 s of the death.', holds: world => heldAt(world, 'b', 'lease') < 17_000 },
      { text: 'It got the plain lock more than 20 s after the death.', holds: world => heldAt(world, 'b', 'plain') > 27_000 },
    ],
  },
  {
    name: 'lost-tail',
    title: 'Lost tail',
    text: 'Process a has the lock when the stores fail over: the log loses its last records, with the grant, and the plain lock its key. Replicas that saw more notice it and begin a new generation: nothing is granted until every holder that the log has forgotten must have stopped. The plain lock is free at once: b takes it while a still works.',
    settings: { processes: 2 },
    acts: [
      { at: 500, act: 'acquire', who: 0 },
      { at: 3_000, act: 'acquire', who: 1 },
      { at: 6_000, act: 'loseTail', amount: 4 },
    ],
    length: 30_000,
    claims: [
      oneHolder,
      {
        text: 'The loss was noticed, and the log became quiet.',
        holds: world => world.history.conditions.some(({ kind }) => kind === 'quiet'),
      },
      { text: 'Afterwards the lease was granted again.', holds: world => heldInTurn(world, 'lease').length > 1 },
      twoHolders,
    ],
  },
  {
    name: 'hand-over',
    title: 'Election with hand-over',
    text: 'Three processes stand for election. The leader a resigns in favour of c: it ends its work first, and the office goes to c without waiting for a ttl, and with a newer token. Later c is killed, and b is elected when the ttl of c is over.',
    settings: { processes: 3, program: 1, plain: 0 },
    acts: [...inTurn(0, 1, 2), { at: 8_000, act: 'transfer', who: 0, amount: 2 }, { at: 15_000, act: 'kill', who: 2 }],
    length: 28_000,
    claims: [
      oneHolder,
      { text: 'The office went from a to c, and then to b.', holds: world => heldInTurn(world, 'lease') === 'a c b' },
      {
        text: 'The hand-over took less than 3 s, and no ttl had to run.',
        holds: world => heldAt(world, 'c', 'lease') < 11_000,
      },
    ],
  },
  {
    name: 'dead-waiter',
    title: 'Fair queue with a dead waiter',
    text: 'Four processes want the lock and queue in the order of their requests. Process b dies while it waits. When a releases, c is next after b: the place of a dead waiter lapses with its own ttl, so it holds up the queue at most that long. The plain lock has no queue: the process that happens to ask first gets it.',
    settings: { processes: 4 },
    acts: [
      ...inTurn(0, 1, 2, 3),
      { at: 5_000, act: 'kill', who: 1 },
      { at: 13_000, act: 'release', who: 0 },
      { at: 20_000, act: 'release', who: 2 },
    ],
    length: 28_000,
    claims: [
      oneHolder,
      { text: 'The lease went from a to c, and then to d.', holds: world => heldInTurn(world, 'lease') === 'a c d' },
      { text: 'Process c got it within 2 s of the release.', holds: world => heldAt(world, 'c', 'lease') < 15_000 },
    ],
  },
  {
    name: 'session',
    title: 'Session with its family',
    text: 'Process a opens a session, two documents and a session of a sub-agent under it. Process b waits for one of the documents. When a is killed, the session lapses, and everything under it ends in the same revision of the log: b has its document at once.',
    settings: { processes: 2, program: 2, plain: 0 },
    acts: [...inTurn(0), { at: 4_000, act: 'acquire', who: 1 }, { at: 10_000, act: 'kill', who: 0 }],
    length: 24_000,
    claims: [
      oneHolder,
      {
        text: 'The whole family ended at one moment.',
        holds: world => {
          const ends = world.history.marks.filter(
            ({ kind, text }) => kind === 'event' && /^(lapsed|revoked)/.test(text) && / a( |$)/.test(text),
          )
          return ends.length >= 2 && new Set(ends.map(({ at }) => at)).size === 1
        },
      },
      { text: 'Process b got its document.', holds: world => heldInTurn(world, 'lease', 'documents/1') === 'a b' },
    ],
  },
  {
    name: 'backfill',
    title: 'Pool with backfill',
    text: 'Process a offers three GPUs. Process b takes two of them for 12 s. Process c needs all three and waits. Process d needs one for 4 s: it is served before c, because it will be done before c could start. So it delays no one, and a GPU that would have been idle is used.',
    settings: { processes: 4, program: 3, plain: 0 },
    acts: [
      { at: 500, act: 'acquire', who: 0 },
      { at: 3_000, act: 'acquire', who: 1 },
      { at: 5_000, act: 'acquire', who: 2 },
      { at: 6_500, act: 'acquire', who: 3 },
    ],
    length: 30_000,
    claims: [
      oneHolder,
      { text: 'Process d was served before c, which had asked earlier.', holds: world => heldInTurn(world, 'lease') === 'b d c' },
    ],
  },
]

export function sceneNamed(name: string): Scene | undefined {
  return SCENES.find(scene => scene.name === name)
}
