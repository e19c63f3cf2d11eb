/** Announcements in Redis: fields of the hash `{NAME}:announced`, each with its end by the clock of Redis. The hash itself ends with the last of them. */
import type { Clock } from '../../clock.ts'
import { type Announcements, checkName } from '../announcements.ts'
import { RedisConnection } from './connection.ts'
import { dialUrl, type RedisArgument } from './driver.ts'
import { parseUrl } from './log.ts'

const TIMEOUT = 5_000
/** The hash stays this long after the last announcement was put, in ms: longer than any of them. */
const KEPT = 3_600_000

export class RedisAnnouncements implements Announcements {
  readonly #connection: RedisConnection
  readonly #key: string

  constructor(url: string, clock: Clock) {
    const { url: server, where, name } = parseUrl(url, undefined)
    this.#connection = new RedisConnection({ dial: dialUrl(server, TIMEOUT), clock, timeout: TIMEOUT, where })
    this.#key = `{${name}}:announced`
  }

  async put(name: string, text: string, ttl: number): Promise<void> {
    const end = (await this.#now()) + Math.ceil(ttl)
    await this.#send('HSET', this.#key, checkName(name), `${end} ${text}`)
    await this.#send('PEXPIRE', this.#key, String(KEPT))
  }

  async list(prefix: string): Promise<ReadonlyMap<string, string>> {
    const now = await this.#now()
    const fields = ((await this.#send('HGETALL', this.#key)) as readonly Buffer[]).map(String)
    const found = new Map<string, string>()
    for (let i = 0; i < fields.length; i += 2) {
      const [name, text] = [fields[i]!, current(fields[i + 1]!, now)]
      if (text === undefined) await this.#send('HDEL', this.#key, name)
      else if (name.startsWith(prefix)) found.set(name, text)
    }
    return found
  }

  async take(name: string): Promise<string | undefined> {
    const value = (await this.#send('HGET', this.#key, checkName(name))) as Buffer | null
    if (value === null) return undefined
    const text = current(value.toString(), await this.#now())
    const removed = await this.#send('HDEL', this.#key, name)
    return Number(removed) === 1 ? text : undefined // another caller was first
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#connection.close()
  }

  async #now(): Promise<number> {
    const [seconds, micros] = ((await this.#send('TIME')) as readonly Buffer[]).map(Number) as [number, number]
    return seconds * 1_000 + Math.floor(micros / 1_000)
  }

  #send(...args: readonly RedisArgument[]): Promise<unknown> {
    return this.#connection.send(args, { ifLost: 'UNAVAILABLE' })
  }
}

function current(value: string, now: number): string | undefined {
  const space = value.indexOf(' ')
  return Number(value.slice(0, space)) > now ? value.slice(space + 1) : undefined
}
