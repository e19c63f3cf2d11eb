/**
 * What every store that can be owned must do when an answer is lost, and when an accident befalls what it keeps while no process has it open.
 * It needs no test runner: each sentence has a `run` that throws.
 *
 * ```ts
 * for (const { name, run } of ownedSuite(openFixture)) test(name, run)
 * ```
 */
import assert from 'node:assert/strict'
import { LeaseError } from '../errors.ts'
import { type LogRecord, type Position, START, type Store } from '../store.ts'
import type { SuiteCase } from './store-suite.ts'

/** One fresh, empty log, and the accidents that can befall it. */
export interface OwnedFixture extends AsyncDisposable {
  /** One that asks to be the only one. Not open yet; the suite closes it. */
  owner(name: string): Store
  /** Has `owner` append, and loses the answer. Resolves when the engine does no more of it; `owner` need not be usable afterwards. */
  loseAnswer(owner: Store, append: () => Promise<unknown>): Promise<void>
  /** Called while an owner has the log open, early in its life: what is saved now may be put back by an accident. */
  remember?(): Promise<void>
  /** Empty where nothing is kept while no process has it open. */
  readonly accidents: readonly Accident[]
}

/** Befalls a log that was closed. */
export interface Accident {
  readonly name: string
  happen(): Promise<void>
  /** All that the engine keeps, to compare. */
  contents(): Promise<string>
}

const ENTRIES = 40

export function ownedSuite(open: () => Promise<OwnedFixture>): SuiteCase[] {
  const sentence = (name: string, run: (fixture: OwnedFixture) => Promise<void>): SuiteCase => ({
    name,
    run: async () => {
      await using fixture = await open()
      await run(fixture)
    },
  })
  return [
    sentence('an append whose answer was lost is UNKNOWN, and stands whole or not at all for the next owner', async fixture => {
      const { before, found } = await afterLostAnswer(fixture)
      assert.deepEqual(found.slice(0, before.length), before)
      assert.ok(found.length <= before.length + 1, 'it stands once at most')
      if (found.length > before.length) assert.equal(found.at(-1), 'lost?')
    }),

    sentence(
      'an entry that is sent again after its answer was lost stands behind the first copy, and nothing is missing',
      async fixture => {
        const { before, found } = await afterLostAnswer(fixture)
        await using owner = fixture.owner('third')
        const { head } = await owner.open()
        const answer = await owner.append(bytes('lost?'), head)
        assert.equal(answer.kind, 'appended')
        const copies = found.length > before.length ? ['lost?', 'lost?'] : ['lost?']
        assert.deepEqual(texts(await readAll(owner)), [...before, ...copies])
      },
    ),

    sentence('one who stood on the log before an answer was lost learns of the entry, or that it does not stand', async fixture => {
      const { stoodOn, before, found } = await afterLostAnswer(fixture)
      await using owner = fixture.owner('third')
      await owner.open()
      const answer = await owner.append(bytes('next'), stoodOn)
      assert.ok(answer.kind === 'appended', answer.kind)
      assert.deepEqual(texts(answer.missed), found.slice(before.length))
    }),

    {
      name: 'an accident while no process had the log open ends in an error that says so and changes nothing, or in a log that is whole',
      run: () => eachAccident(open),
    },
  ]
}

interface Lost {
  /** What stood there, and the place of the last of it. */
  readonly before: readonly string[]
  readonly stoodOn: Position
  /** What the next owner found. */
  readonly found: readonly string[]
}

async function afterLostAnswer(fixture: OwnedFixture): Promise<Lost> {
  const before = ['a', 'b', 'c']
  let stoodOn: Position
  {
    await using owner = fixture.owner('first')
    await owner.open()
    stoodOn = await appendAll(owner, before)
    let outcome: unknown
    const append = () =>
      owner.append(bytes('lost?'), stoodOn).then(
        answer => {
          outcome = answer
        },
        error => {
          outcome = error
        },
      )
    await fixture.loseAnswer(owner, append)
    assert.ok(outcome instanceof LeaseError && outcome.code === 'UNKNOWN', `expected UNKNOWN, got ${String(outcome)}`)
  }
  await using next = fixture.owner('second')
  await next.open()
  return { before, stoodOn, found: texts(await readAll(next)) }
}

async function eachAccident(open: () => Promise<OwnedFixture>): Promise<void> {
  const seen: string[] = []
  for (let number = 0; ; number++) {
    await using fixture = await open()
    const accident = fixture.accidents[number]
    if (accident === undefined) break
    const words = Array.from({ length: ENTRIES }, (_, i) => `${i}`.repeat(100))
    {
      await using owner = fixture.owner('first')
      await owner.open()
      const early = await appendAll(owner, words.slice(0, 3))
      await fixture.remember?.()
      await appendAll(owner, words.slice(3), early)
    }
    await accident.happen()
    const before = await accident.contents()
    const owner = fixture.owner('second')
    try {
      await owner.open()
    } catch (error) {
      assert.ok(error instanceof LeaseError && error.facts.reason !== undefined, `${accident.name}: ${String(error)}`)
      await owner[Symbol.asyncDispose]()
      assert.ok((await accident.contents()) === before, `${accident.name}: what is kept has changed, though opening it was refused`)
      seen.push('refused')
      continue
    }
    try {
      assert.deepEqual(texts(await readAll(owner)), words, accident.name)
      seen.push('whole')
    } catch (error) {
      if (!(error instanceof LeaseError)) throw error
      seen.push('refused')
    } finally {
      await owner[Symbol.asyncDispose]()
    }
  }
  if (seen.length > 0) assert.ok(seen.includes('refused'), 'no accident did any harm: the fixture hurts nothing that counts')
}

async function appendAll(store: Store, words: readonly string[], after: Position = START): Promise<Position> {
  for (const word of words) {
    const answer = await store.append(bytes(word), after)
    assert.ok(answer.kind === 'appended', answer.kind)
    after = answer.position
  }
  return after
}

async function readAll(store: Store): Promise<LogRecord[]> {
  const all: LogRecord[] = []
  for (;;) {
    const read = await store.read(all.at(-1)?.position ?? START)
    assert.ok(read.kind === 'records', read.kind)
    if (read.records.length === 0) return all
    all.push(...read.records)
  }
}

function bytes(word: string): Uint8Array {
  return new TextEncoder().encode(word)
}

function texts(entries: readonly LogRecord[]): string[] {
  return entries.map(entry => new TextDecoder().decode(entry.bytes))
}
