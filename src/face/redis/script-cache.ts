/** The scripts that are kept for EVALSHA, for each key its own: no client can flush or replace those of another. A script that is not kept is sent again by its client. */
import { createHash } from 'node:crypto'
import { MAX_LENGTH } from './lua.ts'
import { LockScript } from './script.ts'

/** Characters of all scripts of one key, and of all keys. A parsed script takes about 60 times as many bytes; lock clients have scripts of 300 to 2,000 characters. */
const MAX_OF_KEY = 128 << 10
const MAX_IN_ALL = 1 << 20

interface KeptScript {
  readonly sha: string
  readonly script: LockScript
  readonly length: number
}

/** The scripts of one key, the oldest first. */
class ScriptsOfKey {
  readonly bySha = new Map<string, KeptScript>()
  length = 0

  keep(kept: KeptScript): void {
    this.bySha.set(kept.sha, kept)
    this.length += kept.length
    while (this.length > MAX_OF_KEY) {
      const [oldest] = this.bySha.values()
      this.bySha.delete(oldest!.sha)
      this.length -= oldest!.length
    }
  }
}

export class KeptScripts {
  /** By the number of a key, the one that sent a script longest ago first. Callers without a key share theirs, as they share everything. */
  readonly #byKey = new Map<number, ScriptsOfKey>()
  #length = 0

  /** Throws LuaError. */
  load(key: number, source: string): KeptScript {
    // The hash of a text of megabytes would cost more than a script may.
    const sha = source.length > MAX_LENGTH ? '' : createHash('sha1').update(source).digest('hex')
    const known = this.#byKey.get(key)?.bySha.get(sha)
    if (known !== undefined) return known
    const kept = { sha, script: new LockScript(source), length: source.length }
    const ofKey = this.#byKey.get(key) ?? new ScriptsOfKey()
    this.flush(key)
    ofKey.keep(kept)
    this.#byKey.set(key, ofKey)
    this.#length += ofKey.length
    while (this.#length > MAX_IN_ALL) this.flush(this.#byKey.keys().next().value!)
    return kept
  }

  get(key: number, sha: string): LockScript | undefined {
    return sha.length === 40 ? this.#byKey.get(key)?.bySha.get(sha.toLowerCase())?.script : undefined
  }

  /** Forgets the scripts of this key. */
  flush(key: number): void {
    this.#length -= this.#byKey.get(key)?.length ?? 0
    this.#byKey.delete(key)
  }
}
