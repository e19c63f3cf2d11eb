/** The state of the log itself, which no process knows: the kernel applied to every record when it is appended. It is only shown. */
import { applyBatch, decodeBatch } from '../src/kernel/codec/batch.ts'
import { StateLoader } from '../src/kernel/codec/snapshot.ts'
import type { Event } from '../src/kernel/event.ts'
import { createState, type State } from '../src/kernel/state.ts'
import type { MemoryLog } from '../src/store/memory.ts'
import { type Position, START } from '../src/store.ts'

export class LogReading {
  #state = createState()

  get state(): State {
    return this.#state
  }

  /** Applies a record, and returns what happened. */
  append({ index }: Position, bytes: Uint8Array): readonly Event[] {
    const events: Event[] = []
    applyBatch(this.#state, index, decodeBatch(bytes), { events, timer() {} })
    return events
  }

  /** Reads the log from its snapshot again: it has lost records. */
  async rebuild(log: MemoryLog): Promise<void> {
    const { snapshot } = log
    this.#state = createState()
    if (snapshot !== undefined) {
      const loader = new StateLoader()
      for await (const chunk of snapshot.bytes) loader.add(chunk)
      this.#state = Object.assign(loader.finish(), { index: snapshot.position.index })
    }
    let at = snapshot?.position ?? START
    for (;;) {
      const read = log.read(at, 0)
      if (read.kind !== 'records' || read.records.length === 0) return
      for (const { position, bytes } of read.records) {
        this.append(position, bytes)
        at = position
      }
    }
  }
}
