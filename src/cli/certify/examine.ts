/** One examination of one engine, from the first sentence to the last log taken away. */
import { type Clock, pause } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import { type EngineUnderTest, messageOf, NotTried } from '../../store/certification.ts'
import { storeSuite } from '../../testing/store-suite.ts'
import type { Output } from '../output.ts'
import { engineUnderTest } from './engine-under-test.ts'
import { answersCut, type Fault, restarted, writerKilled } from './fault.ts'
import { measure } from './measure.ts'
import { FAULTS, type Findings, type Tried } from './verdict.ts'

/** A sentence bounds what it waits for; this bounds an engine that answers each call just in time. */
const SENTENCE_TIMEOUT = 60_000

export interface Examination {
  readonly out: Output
  readonly restart: string | undefined
  readonly clock: Clock
  readonly signal: AbortSignal
}

export async function examine(url: string, { out, restart, clock, signal }: Examination): Promise<Findings> {
  const place = await engineUnderTest(url, clock)
  let found: Omit<Findings, 'left'>
  let left: readonly string[] = []
  // Whoever failed half-way leaves promises behind that nobody awaits any more; they say nothing that was not said.
  const ignore = () => {}
  process.on('unhandledRejection', ignore)
  try {
    const profile = await profileOf(place)
    const sentences = await suite(place, { out, clock, signal })
    out.note('measuring')
    const measured = await measure(() => place.log(), clock).catch(error => ({ failed: messageOf(error) }))
    if (out.json) await out.data({ measured })
    const fault = async (name: string, work: () => Promise<Fault>) => {
      signal.throwIfAborted()
      out.note(`fault: ${FAULTS[name]}`)
      const result = await tried(work)
      if (out.json) await out.data({ fault: name, ...result })
      return result
    }
    const faults = {
      answersCut: await fault('answersCut', () => answersCut(place, clock)),
      writerKilled: await fault('writerKilled', () => writerKilled(place)),
      restart: await fault('restart', () => restarted(place, restart, clock)),
    }
    // Read again: a setting that was changed by hand does not outlive a restart.
    found = { profile: faults.restart.noticed === true ? await profileOf(place) : profile, sentences, measured, faults }
  } finally {
    left = await place.remove()
    process.off('unhandledRejection', ignore)
    if (left.length > 0) out.note(`left behind: ${left.join('; ')}`)
  }
  return { ...found, left }
}

/** As it is when a store is open: some of them learn what they may promise from the engine's settings. */
async function profileOf(place: EngineUnderTest): Promise<Findings['profile']> {
  await using store = place.log().store()
  await store.open()
  return store.profile
}

async function suite(place: EngineUnderTest, { out, clock, signal }: Pick<Examination, 'out' | 'clock' | 'signal'>): Promise<Tried[]> {
  const sentences = storeSuite(async () => ({ ...place.log(), [Symbol.asyncDispose]: async () => {} }))
  const all: Tried[] = []
  for (const { name, run } of sentences) {
    signal.throwIfAborted()
    const result = await tried(async () => {
      await within(clock, run())
      return { result: 'passed' }
    })
    all.push({ name, ...result })
    if (out.json) await out.data({ sentence: name, ...result })
    if (!out.json || result.result !== 'passed')
      out.note(`${all.length}/${sentences.length} ${result.result}: ${name}${result.reason ? ` (${result.reason})` : ''}`)
  }
  return all
}

async function tried(work: () => Promise<Fault>): Promise<Fault> {
  try {
    return await work()
  } catch (error) {
    return { result: error instanceof NotTried ? 'not tried' : 'failed', reason: messageOf(error).split('\n')[0] ?? '' }
  }
}

async function within(clock: Clock, work: Promise<void>): Promise<void> {
  const over = new AbortController()
  const late = pause(clock, SENTENCE_TIMEOUT, over.signal, { ref: true }).then(() => {
    throw new LeaseError('UNAVAILABLE', `it did not end within ${SENTENCE_TIMEOUT} ms`)
  })
  try {
    await Promise.race([work, late])
  } finally {
    late.catch(() => {})
    over.abort()
  }
}
