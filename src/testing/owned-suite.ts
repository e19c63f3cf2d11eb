/**
 * The contract of a store that can be owned, when an answer is lost and when its data is changed while no process has it open. The suite
 * needs no test runner: each case has a name that is a sentence, and a `run` that throws.
 *
 * ```ts
 * for (const { name, run } of ownedSuite(openFixture)) test(name, run)
 * ```
 */
import assert from 'node:assert/strict'
import { LeaseError } from '../errors.ts'
import { type LogRecord, type Position, START, type Store } from '../store.ts'
import type { SuiteCase } from './suite-case.ts'

/** One fresh, empty log, and the accidents that the suite can cause. */
export interface OwnedFixture extends AsyncDisposable {
  /** A store that asks to own the log. Not open yet; the suite closes it. */
  owner(name: string): Store
  /** Has `owner` append, and loses the answer. Resolves when the engine has finished; `owner` need not be usable afterwards. */
  loseAnswer(owner: Store, append: () => Promise<unknown>): Promise<void>
  /** Called early while an owner has the log open. An accident may restore what is saved here. */
  remember?(): Promise<void>
  /** Empty where the store keeps nothing while no process has it open. */
  readonly accidents: readonly Accident[]
}

/** Happens to a log that was closed. */
export interface Accident {
  readonly name: string
  happen(): Promise<void>
  /** All data of the engine, to compare. */
  contents(): Promise<string>
}

const RECORDS = 40

export function ownedSuite(open: () => Promise<OwnedFixture>): SuiteCase[] {
  const suiteCase = (name: string, run: (fixture: OwnedFixture) => Promise<void>): SuiteCase => ({
    name,
    run: async () => {
      await using fixture = await open()
      await run(fixture)
    },
  })
  return [
    suiteCase('an append whose answer was lost is UNKNOWN, and the next owner finds the whole record or none', async fixture => {
      const { before, found } = await afterLostAnswer(fixture)
      assert.deepEqual(found.slice(0, before.length), before)
      assert.ok(found.length <= before.length + 1, 'the record is there at most once')
      if (found.length > before.length) assert.equal(found.at(-1), 'lost?')
    }),

    suiteCase(
      'a record that is appended again after its answer was lost follows the first copy, and no record is missing',
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

    suiteCase('an append at the position before a lost answer returns the record, or shows that it is not there', async fixture => {
      const { position, before, found } = await afterLostAnswer(fixture)
      await using owner = fixture.owner('third')
      await owner.open()
      const answer = await owner.append(bytes('next'), position)
      assert.ok(answer.kind === 'appended', answer.kind)
      assert.deepEqual(texts(answer.missed), found.slice(before.length))
    }),

    {
      name: 'an accident while no process has the log open leads to an error that says so and changes nothing, or to a whole log',
      run: () => eachAccident(open),
    },
  ]
}

interface Lost {
  /** The records, and the position of the last one. */
  readonly before: readonly string[]
  readonly position: Position
  /** The records that the next owner found. */
  readonly found: readonly string[]
}

async function afterLostAnswer(fixture: OwnedFixture): Promise<Lost> {
  const before = ['a', 'b', 'c']
  let position: Position
  {
    await using owner = fixture.owner('first')
    await owner.open()
    position = await appendAll(owner, before)
    let outcome: unknown
    const append = () =>
      owner.append(bytes('lost?'), position).then(
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
  return { before, position, found: texts(await readAll(next)) }
}

async function eachAccident(open: () => Promise<OwnedFixture>): Promise<void> {
  const seen: string[] = []
  for (let number = 0; ; number++) {
    await using fixture = await open()
    const accident = fixture.accidents[number]
    if (accident === undefined) break
    const words = Array.from({ length: RECORDS }, (_, i) => `${i}`.repeat(100))
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
      assert.ok(error instanceof LeaseError && error.reason !== undefined, `${accident.name}: ${String(error)}`)
      await owner[Symbol.asyncDispose]()
      assert.ok((await accident.contents()) === before, `${accident.name}: the data has changed, although opening it was refused`)
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
  if (seen.length > 0)
    assert.ok(seen.includes('refused'), 'no accident did any harm: the accidents of the fixture change nothing that matters')
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

function texts(records: readonly LogRecord[]): string[] {
  return records.map(record => new TextDecoder().decode(record.bytes))
}
