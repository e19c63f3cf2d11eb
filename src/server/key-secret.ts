/** The secrets of keys: random, told once, kept only as a hash. */
import { createHash } from 'node:crypto'
import type { Clock } from '../clock.ts'

const WORDS = 4
/** Told apart from everything else at a glance, by people and by scanners for secrets. */
const MARK = 'lh_'
/** A secret of ours wherever it stands. */
export const SECRET = /lh_[A-Za-z0-9_-]{43}/g

/** 256 random bits. */
export function newSecret(clock: Clock): string {
  const bytes = Buffer.alloc(WORDS * 8)
  for (let i = 0; i < WORDS; i++) bytes.writeBigUInt64LE(clock.bits(), i * 8)
  return MARK + bytes.toString('base64url')
}

export function hashOf(secret: string): string {
  return createHash('sha256').update(secret).digest('hex')
}
