/** What a key is allowed, in words. */
import { LeaseError } from '../../errors.ts'
import { type Scope, VERBS, type Verb } from '../../kernel/command.ts'

/** `acquire,read:jobs/` is two scopes over one prefix; without a prefix a scope is over everything. */
export function scopesIn(text: string): Scope[] {
  const at = text.indexOf(':')
  const prefix = at < 0 ? '' : text.slice(at + 1)
  // No more than there are, and one: a text of megabytes is refused for its first bad verb, or for its length.
  const verbs = (at < 0 ? text : text.slice(0, at)).split(',', VERBS.length + 1)
  if (verbs.length > VERBS.length)
    throw new LeaseError('INVALID', `there are ${VERBS.length} verbs, and more were named: ${VERBS.join(', ')}`)
  return verbs.map(verb => {
    if (!VERBS.includes(verb as Verb))
      throw new LeaseError('INVALID', `there is no verb ${verb.slice(0, 32)}; there are ${VERBS.join(', ')}`)
    return { verb: verb as Verb, prefix }
  })
}
