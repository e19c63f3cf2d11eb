/** The contract of a store: answers that are lost. */
import assert from 'node:assert/strict'
import { LeaseError } from '../../errors.ts'
import { appended, bytes, failureOf } from './records.ts'
import type { StoreCases } from './store-log.ts'

export const lostAnswersCases: StoreCases = {
  'an append that fails after an answer was lost is UNKNOWN, unless the record is certainly not in the log': async log => {
    for (const end of ['disconnected', 'forbidden'] as const)
      for (let after = 0; after < 4; after++) {
        const what = `${end} after ${after}`
        await log.breakLink(async (store, fail, head) => {
          fail({ before: 0, after, end })
          const result = await store.append(bytes(what), head).catch(failureOf)
          const there = (await log.everything()).includes(what)
          if (result instanceof LeaseError)
            assert.ok(result.code === 'UNKNOWN' || !there, `${what}: it is in the log, and its caller was told ${result.code}`)
          else assert.equal(there, result.kind === 'appended' || result.kind === 'behind', `${what}: ${result.kind}`)
        })
      }
  },

  'a snapshot that fails after an answer was lost is UNKNOWN, unless it certainly is not in force': async log => {
    for (const end of ['disconnected', 'forbidden'] as const)
      for (let before = 0; before < 3; before++)
        for (let after = 0; after < 2; after++) {
          const what = `${end}, ${before} before and ${after} after`
          const direct = await log.open()
          const at = appended(await direct.append(bytes(what), log.end)).position
          log.end = at
          await log.breakLink(async (store, fail) => {
            // The link breaks at the end of an empty snapshot: the requests after that put it in force.
            async function* nothing(): AsyncGenerator<Uint8Array> {
              fail({ before, after, end })
              yield* []
            }
            const result = await store.snapshot(at, nothing()).catch(failureOf)
            const inForce = (await direct.newest())?.position.index === at.index
            if (result instanceof LeaseError)
              assert.ok(result.code === 'UNKNOWN' || !inForce, `${what}: it is in force, and its caller was told ${result.code}`)
            else assert.equal(result, inForce ? 'kept' : 'older', what)
          })
          await direct[Symbol.asyncDispose]()
        }
  },
}
