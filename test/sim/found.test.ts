/** Mistakes that the simulator once found, reproduced without it. */
import { expect, test } from 'vitest'
import { turn } from '../../src/clock.ts'
import type { LeaseError } from '../../src/errors.ts'
import type { Acquire } from '../../src/kernel/command.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import type { Appended, Position, Read } from '../../src/store.ts'

/** A store that can hold back appends and reads. */
class GatedStore extends MemoryStore {
  readonly #gates = { append: open(), read: open() }
  waiting = 0

  shut(gate: 'append' | 'read'): () => void {
    let release = () => {}
    this.#gates[gate] = new Promise(resolve => {
      release = resolve
    })
    return release
  }

  override async append(record: Uint8Array, after: Position): Promise<Appended> {
    this.waiting++
    await this.#gates.append
    return super.append(record, after)
  }

  override async read(after: Position, options?: { readonly wait?: AbortSignal }): Promise<Read> {
    const read = await super.read(after, options)
    await this.#gates.read
    return read
  }
}

async function open(): Promise<void> {}

function acquire(resource: string): Acquire {
  return { kind: 'acquire', holder: 'h', ttl: 60_000, wants: [{ resource }] }
}

test('an append in progress while the log loses its tail is not applied on top of the lost records', async () => {
  const log = new MemoryLog()
  const store = new GatedStore({ log })
  await using mine = await Replica.open(store)
  await using other = await Replica.open(new MemoryStore({ log }))
  await propose(other, acquire('first'))
  while (mine.index < 1) await turn()

  const continueAppends = store.shut('append')
  const proposal = propose(mine, acquire('mine'))
  const answer = proposal.catch(error => error as LeaseError)
  while (store.waiting === 0) await turn()
  await propose(other, acquire('lost')) // read by `mine` while its own record, which follows the first, is not yet appended
  while (mine.index < 2) await turn()

  const continueReads = store.shut('read')
  log.loseTail(1)
  await using late = await Replica.open(new MemoryStore({ log }))
  await propose(late, acquire('instead'))
  continueAppends()
  const error = await answer
  continueReads()
  expect(error).toMatchObject({ code: 'UNKNOWN' })
  expect(mine.signal.reason).toMatchObject({ code: 'DIVERGED' })
})
