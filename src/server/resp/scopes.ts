/** Parses the scopes of a key, as in `leasehold key create --allow`. */
import { LeaseError } from '../../errors.ts'
import { type Scope, VERBS, type Verb } from '../../kernel/command.ts'

/** `acquire,read:jobs/` is two scopes with one prefix. Without a prefix, a scope applies to everything. */
export function scopesIn(text: string): Scope[] {
  const at = text.indexOf(':')
  const prefix = at < 0 ? '' : text.slice(at + 1)
  // Split off at most one verb more than exist: a text of megabytes must not become a list of a million.
  const verbs = (at < 0 ? text : text.slice(0, at)).split(',', VERBS.length + 1)
  if (verbs.length > VERBS.length)
    throw new LeaseError('INVALID', `a scope names more verbs than exist: the ${VERBS.length} verbs are ${VERBS.join(', ')}`)
  return verbs.map(verb => {
    if (!VERBS.includes(verb as Verb))
      throw new LeaseError('INVALID', `there is no verb ${verb.slice(0, 32)}. The verbs are ${VERBS.join(', ')}`)
    return { verb: verb as Verb, prefix }
  })
}
