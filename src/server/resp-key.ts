/** Secrets of keys, and what a key is allowed in words. The log keeps a secret's hash alone. */
import { createHash } from 'node:crypto'
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { type Scope, VERBS, type Verb } from '../kernel/command.ts'

/** 256 bits that nobody can guess, with a beginning by which scanners of repositories know what they found. */
export function newSecret(clock: Clock): string {
  const bytes = Buffer.alloc(32)
  for (let at = 0; at < 32; at += 8) bytes.writeBigUInt64LE(clock.bits(), at)
  return `lh_${bytes.toString('base64url')}`
}

export function hashOf(secret: string): string {
  return createHash('sha256').update(secret).digest('hex')
}

/** `acquire,read:jobs/` is two scopes over one prefix; without a prefix a scope is over everything. */
export function scopesIn(text: string): Scope[] {
  const at = text.indexOf(':')
  const prefix = at < 0 ? '' : text.slice(at + 1)
  const verbs = (at < 0 ? text : text.slice(0, at)).split(',')
  return verbs.map(verb => {
    if (!VERBS.includes(verb as Verb))
      throw new LeaseError('INVALID', `there is no verb ${verb.slice(0, 32)}; there are ${VERBS.join(', ')}`)
    return { verb: verb as Verb, prefix }
  })
}
