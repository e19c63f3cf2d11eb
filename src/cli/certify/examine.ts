/** One run of `certify`: the store suite, the measurements and the faults, and removing the logs it used. */
import { type Clock, pause } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import { type EngineUnderTest, messageOf, NotTried } from '../../store/certification.ts'
import { storeSuite } from '../../testing/store-suite.ts'
import type { Output } from '../output.ts'
import { engineUnderTest } from './engine-under-test.ts'
import { answersCut, type Fault, restarted, writerKilled } from './fault.ts'
import { measure } from './measure.ts'
import { FAULTS, type Findings, type Tried } from './verdict.ts'

/** Each call of a sentence has its own timeout. This one stops an engine that answers each call just in time. */
const SENTENCE_TIMEOUT = 60_000

export interface Examination {
  readonly out: Output
  readonly restart: string | undefined
  readonly clock: Clock
  readonly signal: AbortSignal
}

export async function examine(url: string, { out, restart, clock, signal }: Examination): Promise<Findings> {
  const engine = await engineUnderTest(url, clock)
  let found: Omit<Findings, 'left'>
  let left: readonly string[] = []
  // A sentence that failed half-way leaves promises behind that are no longer awaited. Its failure has been reported already.
  const ignore = () => {}
  process.on('unhandledRejection', ignore)
  try {
    const profile = await profileOf(engine)
    const sentences = await suite(engine, { out, clock, signal })
    out.note('measuring')
    const measured = await measure(() => engine.log(), clock).catch(error => ({ failed: messageOf(error) }))
    if (out.json) await out.data({ measured })
    const fault = async (name: string, work: () => Promise<Fault>) => {
      signal.throwIfAborted()
      out.note(`fault: ${FAULTS[name]}`)
      const result = await attempt(work)
      if (out.json) await out.data({ fault: name, ...result })
      return result
    }
    const faults = {
      answersCut: await fault('answersCut', () => answersCut(engine, clock)),
      writerKilled: await fault('writerKilled', () => writerKilled(engine)),
      restart: await fault('restart', () => restarted(engine, restart, clock)),
    }
    // Read the profile again: a setting changed at run time may be lost in a restart.
    found = { profile: faults.restart.noticed === true ? await profileOf(engine) : profile, sentences, measured, faults }
  } finally {
    left = await engine.remove()
    process.off('unhandledRejection', ignore)
    if (left.length > 0) out.note(`left behind: ${left.join('; ')}`)
  }
  return { ...found, left }
}

/** The profile of an open store: some stores learn their guarantees from the engine's settings. */
async function profileOf(engine: EngineUnderTest): Promise<Findings['profile']> {
  await using store = engine.log().store()
  await store.open()
  return store.profile
}

async function suite(engine: EngineUnderTest, { out, clock, signal }: Pick<Examination, 'out' | 'clock' | 'signal'>): Promise<Tried[]> {
  const sentences = storeSuite(async () => ({ ...engine.log(), [Symbol.asyncDispose]: async () => {} }))
  const all: Tried[] = []
  for (const { name, run } of sentences) {
    signal.throwIfAborted()
    const result = await attempt(async () => {
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

async function attempt(work: () => Promise<Fault>): Promise<Fault> {
  try {
    return await work()
  } catch (error) {
    return { result: error instanceof NotTried ? 'not tried' : 'failed', reason: messageOf(error).split('\n')[0] ?? '' }
  }
}

async function within(clock: Clock, work: Promise<void>): Promise<void> {
  const finished = new AbortController()
  const late = pause(clock, SENTENCE_TIMEOUT, finished.signal, { ref: true }).then(() => {
    throw new LeaseError('UNAVAILABLE', `it did not finish within ${SENTENCE_TIMEOUT} ms`)
  })
  try {
    await Promise.race([work, late])
  } finally {
    late.catch(() => {})
    finished.abort()
  }
}
