/** The JSON of keys over HTTP. */
import Type, { type Static } from 'typebox'
import { VERBS } from '../../kernel/command.ts'
import { keyFields, keyLimitFields } from '../../kernel/command-table.ts'
import { fieldsOf, name, schemaOf, text, whole } from './command-schema.ts'
import { answer, closed, op, optional, revision } from './schema-parts.ts'

export type { Static }

const Scope = closed({ verb: Type.Enum([...VERBS]), prefix: text('By whole segments; empty: everything.') })
const hash = optional(
  Type.String({
    pattern: '^[0-9a-f]{64}$',
    description: 'SHA-256 of a secret that the client made. Left out: the server makes one and shows it once.',
  }),
)
const expires = optional(
  text("A duration from now such as '90d', or a time such as 2027-01-31T00:00:00Z. The wall clocks of the servers decide.", 64),
)
const bounds = schemaOf(keyFields, 'accounts', 'holders', 'priority', 'noMembers', 'group')
const limits = schemaOf(keyLimitFields)

export const NewKey = closed({
  name,
  allow: Type.Array(Scope, { maxItems: 256 }),
  ...bounds,
  limits: optional(closed(limits)),
  expires,
  hash,
  op,
})
export const Rotation = closed({ hash, ...fieldsOf('rotate', 'overlap'), expires, op })
export const Limits = closed({ ...limits, op }, 'In place of all present limits. What is left out is not limited.')

const use = answer({
  leases: whole('Leases, waiting or not.'),
  waiters: whole('Leases that wait.'),
  entries: whole('Entries, attached to leases or not.'),
  bytes: whole('The bytes of their keys and values.'),
})
const KeyView = {
  id: whole(),
  name,
  allow: Type.Array(Scope),
  ...bounds,
  limits: optional(answer(limits)),
  use: optional(use),
  groupLimits: optional(answer(limits)),
  groupUse: optional(use),
  expires: optional(Type.String({ description: 'A time in UTC.' })),
  formerUntil: optional(Type.String({ description: 'Until then the secret before the last rotation is valid too. A time in UTC.' })),
}
const secret = optional(Type.String({ description: 'The secret. It is shown once and kept nowhere.' }))
export const Key = answer({ ...KeyView, key: secret, revision })
export const Rotated = answer({ id: whole(), key: secret, revision })
export const Keys = answer({ keys: Type.Array(answer(KeyView)), revision })
