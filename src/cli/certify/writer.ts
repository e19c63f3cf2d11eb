/** A process that appends until it is killed, and says of each entry where it was acknowledged to stand. Run by certify alone. */
import { writeSync } from 'node:fs'
import { storeOf } from '../../connect/store-of.ts'

const MAX = 100_000 // nobody has killed us: whoever started us is gone

const store = await storeOf(process.env.LEASEHOLD_URL ?? '')
let { head: after } = await store.open()
for (let i = 0; i < MAX; i++) {
  const answer = await store.append(new TextEncoder().encode(`${i}`), after)
  if (answer.kind !== 'appended') throw new Error(`expected to be appended, got ${answer.kind}`)
  after = answer.position
  writeSync(1, `${after.index} ${after.nonce}\n`)
}
await store[Symbol.asyncDispose]()
