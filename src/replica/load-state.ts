/** Loads the state of a snapshot in slices: a replica may load one log while its process serves another. */
import type { Clock } from '../clock.ts'
import { StateLoader } from '../kernel/codec/snapshot.ts'
import type { State } from '../kernel/state.ts'
import { readFrames } from './frame.ts'

/** Other work is done after so many bytes. Reading from a store does not always leave room for it. */
const SLICE = 256 * 1_024

export async function loadState(pieces: AsyncIterable<Uint8Array>, clock: Clock): Promise<State> {
  const loader = new StateLoader()
  let bytes = 0
  for await (const chunk of readFrames(pieces)) {
    loader.add(chunk)
    bytes += chunk.length
    if (bytes < SLICE) continue
    bytes = 0
    await turnOf(clock)
  }
  return finishLoading(loader, clock)
}

export async function finishLoading(loader: StateLoader, clock: Clock): Promise<State> {
  const steps = loader.steps()
  for (;;) {
    const { done, value } = steps.next()
    if (done === true) return value
    await turnOf(clock)
  }
}

function turnOf(clock: Clock): Promise<void> {
  return new Promise(resolve => clock.soon(resolve))
}
