/** A process that appends until it is killed, and prints the acknowledged position of each entry. Only `certify` runs it. */
import { writeSync } from 'node:fs'
import { storeOf } from '../../connect/store-of.ts'

const MAX = 100_000 // stops if certify itself is gone and does not kill this process

const store = await storeOf(process.env.LEASEHOLD_URL ?? '')
let { head: after } = await store.open()
for (let i = 0; i < MAX; i++) {
  const answer = await store.append(new TextEncoder().encode(`${i}`), after)
  if (answer.kind !== 'appended') throw new Error(`expected to be appended, got ${answer.kind}`)
  after = answer.position
  writeSync(1, `${after.index} ${after.nonce}\n`)
}
await store[Symbol.asyncDispose]()
