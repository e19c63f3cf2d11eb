/** The file beside a file store that keeps what its page shows of the last day. It is for people: one that is missing or damaged is ignored. */
import { closeSync, fstatSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import Type, { type Static } from 'typebox'
import { Value } from 'typebox/value'
import type { ServerLog } from '../listener.ts'
import { COUNTED, LEVELS, MINUTES } from './rate-history.ts'

/** A larger file was not written here. */
const MAX_BYTES = 8 << 20

const text = Type.String({ maxLength: 1_024 })
const number = Type.Number()
const wait = { resource: text, lease: number, holder: text, from: number }

const Saved = Type.Object({
  version: Type.Literal(1),
  since: number,
  minutes: Type.Object({
    from: number,
    step: Type.Literal(60_000),
    series: Type.Object(
      Object.fromEntries([...COUNTED, ...LEVELS].map(name => [name, Type.Array(Type.Union([number, Type.Null()]), { maxItems: MINUTES })])),
    ),
  }),
  losses: Type.Array(
    Type.Object({ at: number, resource: text, lease: number, holder: text, token: number, cause: text, by: Type.Optional(text) }),
  ),
  waits: Type.Array(Type.Object({ ...wait, until: number, ended: text })),
  strips: Type.Array(Type.Tuple([text, Type.Array(Type.Object({ at: number, status: text }))])),
})

export type SavedActivity = Static<typeof Saved> & { readonly minutes: { readonly series: never } }

export class ActivityFile {
  readonly #path: string
  readonly #log: ServerLog

  constructor(path: string, log: ServerLog) {
    this.#path = path
    this.#log = log
  }

  read(): SavedActivity | undefined {
    let file: number | undefined
    try {
      file = openSync(this.#path, 'r')
      if (fstatSync(file).size > MAX_BYTES) return undefined
      const saved: unknown = JSON.parse(readFileSync(file, 'utf8'))
      return Value.Check(Saved, saved) ? (saved as SavedActivity) : undefined
    } catch {
      return undefined
    } finally {
      if (file !== undefined) closeSync(file)
    }
  }

  /** Replaces the file. A failure is logged, and changes nothing else. */
  write(saved: object): void {
    const temporary = `${this.#path}.${process.pid}`
    try {
      // Names of resources and holders are as private as the store.
      writeFileSync(temporary, JSON.stringify(saved), { mode: 0o600 })
      renameSync(temporary, this.#path)
    } catch (error) {
      rmSync(temporary, { force: true })
      this.#log.debug({ error: String(error) }, 'the activity of the last day could not be saved')
    }
  }
}
