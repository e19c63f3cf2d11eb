/** Compares what a scenario expects with what was observed. */
import type { DriverEvent } from './driver.ts'
import type { Expectation } from './scenario.ts'

export interface Observed {
  /** Milliseconds left, by name of the lease. */
  readonly held: ReadonlyMap<string, number>
  answer(as: string): DriverEvent | undefined
  granted(as: string): boolean
  lost(as: string): DriverEvent | undefined
  readonly positions: readonly number[]
}

/** Throws an error that says what is not as expected. */
export function checkExpectation(expected: Expectation, observed: Observed): void {
  const { held, answer, granted, lost, positions } = observed
  const fail = (as: string, what: string) => {
    throw new Error(`${as} ${what}: ${JSON.stringify({ answer: answer(as), lost: lost(as)?.error })}`)
  }
  for (const as of expected.held ?? []) if (!held.has(as)) fail(as, 'is not held')
  for (const as of expected.notHeld ?? []) if (held.has(as)) fail(as, 'is held')
  for (const as of expected.pending ?? []) if (answer(as) !== undefined) fail(as, 'is answered')
  for (const as of expected.granted ?? []) if (!granted(as)) fail(as, 'is not granted')
  for (const as of expected.none ?? []) if (answer(as)?.value !== null) fail(as, 'is not none')
  for (const as of expected.notLost ?? []) if (lost(as) !== undefined) fail(as, 'is lost')
  for (const [as, codes] of Object.entries(expected.error ?? {}))
    if (![codes].flat().includes(answer(as)?.error?.code ?? '')) fail(as, `has no error ${codes}`)
  for (const [as, reason] of Object.entries(expected.reason ?? {}))
    if (answer(as)?.error?.reason !== reason) fail(as, `has not the reason ${reason}`)
  for (const [as, message] of Object.entries(expected.message ?? {}))
    if (answer(as)?.error?.message !== message) fail(as, `is not told "${message}"`)
  for (const [as, causes] of Object.entries(expected.lost ?? {}))
    if (![causes].flat().includes(String(lost(as)?.error?.facts.cause))) fail(as, `is not lost by ${causes}`)
  for (const [as, [least, most]] of Object.entries(expected.remaining ?? {})) {
    const remaining = held.get(as) ?? 0
    if (remaining < least || remaining > most) fail(as, `has ${remaining} ms left, not ${least} to ${most}`)
  }
  if (expected.positions !== undefined && JSON.stringify(positions) !== JSON.stringify(expected.positions))
    throw new Error(`the positions are ${JSON.stringify(positions)}`)
  if (expected.tokensGrow !== undefined) {
    const [first, second] = expected.tokensGrow.map(as => Number((answer(as)?.value as { token?: number } | undefined)?.token))
    if (!(first! < second!)) throw new Error(`tokens do not grow: ${first}, ${second}`)
  }
}
