/** The secrets of keys: random, shown once when a key is created, stored only as a hash. */
import { createHash } from 'node:crypto'
import type { Clock } from '../clock.ts'

const WORDS = 4
/** Makes a secret recognizable, for people and for secret scanners. */
const PREFIX = 'lh_'
/** Matches a secret anywhere in a text. */
export const SECRET_PATTERN = /lh_[A-Za-z0-9_-]{43}/g

/** True for a text that is a secret and nothing else. */
export function isSecret(text: string): boolean {
  return /^lh_[A-Za-z0-9_-]{43}$/.test(text)
}

/** A new secret of 256 random bits. */
export function newSecret(clock: Clock): string {
  const bytes = Buffer.alloc(WORDS * 8)
  for (let i = 0; i < WORDS; i++) bytes.writeBigUInt64LE(clock.bits(), i * 8)
  return PREFIX + bytes.toString('base64url')
}

export function hashSecret(secret: string): string {
  return createHash('sha256').update(secret).digest('hex')
}
