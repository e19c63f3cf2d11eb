import { createHmac } from 'node:crypto'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Hmac } from '../../src/replica/hmac.ts'

test('a signature is that of createHmac, for secrets and texts of any length', () => {
  const secret = fc.string({ unit: 'binary', maxLength: 200 })
  const texts = fc.array(fc.uint8Array({ maxLength: 256 }), { minLength: 1, maxLength: 5 })
  fc.assert(
    fc.property(secret, texts, (secret, texts) => {
      const hmac = new Hmac(secret, 256)
      for (const text of texts) expect(hmac.of(text)).toEqual(createHmac('sha256', secret).update(text).digest())
    }),
  )
})
