/**
 * Who uses the file: written down for people, so that whoever is kept out can be told by whom. What keeps them out is the grip.
 *
 * The rows of processes that were killed stay behind and are taken away by the next to come.
 */
import { hostname } from 'node:os'
import { type Clock, pause } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { FileDatabase } from './database.ts'
import type { Engine, SqliteRow, Statement } from './engine.ts'
import { isBusy } from './errors.ts'
import { FileLock } from './file-lock.ts'
import { alive, describe, pidNamespace, stopped, thisProcess } from './process.ts'

export interface Owning {
  readonly name: string
  readonly address?: string
}

interface User {
  readonly id: number
  readonly pid: number
  readonly started: string
  readonly boot: string
  readonly host: string
  readonly name: string
  readonly since: number
  readonly address: string
}

export class FileUsers {
  readonly #database: FileDatabase
  readonly #clock: Clock
  readonly #own: Owning | undefined
  readonly #grip: FileLock
  #me = 0

  constructor(database: FileDatabase, engine: Engine, clock: Clock, own: Owning | undefined) {
    this.#database = database
    this.#clock = clock
    this.#own = own
    this.#grip = new FileLock(engine, `${database.path}-owner`, own !== undefined)
  }

  /** Our own row; 0 before we have one. */
  get me(): number {
    return this.#me
  }

  /** Takes the grip, or says who has it. */
  async enter(timeout: number): Promise<void> {
    const began = this.#clock.now()
    for (;;) {
      try {
        return this.#grip.take()
      } catch (error) {
        if (!isBusy(error)) throw error
      }
      const over = this.#clock.now() - began >= timeout
      const refusal = await this.#database.read(() => this.#refusal(over))
      if (refusal) throw refusal
      await pause(this.#clock, 5) // someone is just coming or going
    }
  }

  /**
   * Writes us down, and returns the epoch we are in. The grip is ours, so whoever is still written down as the owner has gone, or has
   * lost its grip: either way its epoch ends here.
   */
  register(): number {
    // An owner is alone. Of a process in another container a shared user cannot know whether it lives, and a snapshot that it writes would be
    // taken away together with its row.
    for (const user of this.#all()) if (this.#own || this.#lives(user) === 'no') this.#sql('delete from user where id = ?').run(user.id)
    const { pid, started } = thisProcess()
    const { name = '', address = '' } = this.#own ?? {}
    const insert = this.#sql('insert into user (pid, started, boot, host, name, since, address) values (?, ?, ?, ?, ?, ?, ?)')
    const since = Math.floor(this.#clock.wall())
    this.#me = Number(insert.run(pid, started, this.#place(), hostname(), name, since, address).lastInsertRowid)
    const state = this.#database.state()
    const owner = this.#own ? this.#me : 0
    if (owner === state.owner) return state.epoch
    this.#database.save({ ...state, owner, epoch: state.epoch + 1 })
    return state.epoch + 1
  }

  unregister(): void {
    const state = this.#database.state()
    if (state.owner === this.#me) this.#database.save({ ...state, owner: 0 })
    this.#sql('delete from user where id = ?').run(this.#me)
  }

  announce(address: string): void {
    const { changes } = this.#sql('update user set address = ? where id = ?').run(address, this.#me)
    if (Number(changes) !== 1)
      throw new LeaseError(
        'UNAVAILABLE',
        `${this.#database.path} no longer knows this process: another has taken it over, or removed its row`,
        {
          facts: { path: this.#database.path, reason: 'owned' },
        },
      )
  }

  nameOf(id: number): string | undefined {
    return this.#all().find(user => user.id === id)?.name
  }

  /** Gives up the grip. */
  leave(): void {
    this.#grip.release()
  }

  /** Who keeps us out. Undefined while nobody who lives says so, unless our timeout is `over`. */
  #refusal(over: boolean): LeaseError | undefined {
    const { path } = this.#database
    const { owner: id } = this.#database.state()
    const owner = this.#all().find(user => user.id === id)
    if (owner && (over || this.#lives(owner) === 'yes')) return ownedBy(path, owner)
    const pids = [...new Set(this.#all().flatMap(user => (this.#lives(user) === 'yes' ? [user.pid] : [])))]
    if (this.#own && pids.length > 0) {
      const message = `${path} cannot be owned while it is in shared use by ${pids.map(describe).join(', ')}: end them first, or share it too`
      return new LeaseError('UNAVAILABLE', message, { facts: { path, reason: 'used', users: pids } })
    }
    if (!over) return undefined
    const message = `${path} is in use by a process that cannot be named (in another container?): end it first`
    return new LeaseError('UNAVAILABLE', message, { facts: { path, reason: 'used' } })
  }

  /** Whether no other process is known to use it. */
  first(): boolean {
    return !this.#all().some(user => this.#lives(user) === 'yes')
  }

  #lives({ pid, started, boot }: User): 'yes' | 'no' | 'unknown' {
    if (boot === this.#place()) return alive({ pid, started }) ? 'yes' : 'no'
    return bootIn(boot) === bootIn(this.#place()) ? 'unknown' : 'no'
  }

  /** Where a pid and the start of its process mean something: a boot of this machine, and namespaces in it. */
  #place(): string {
    return [this.#clock.boot(), pidNamespace()].join(' ').trim()
  }

  #all(): User[] {
    const rows = this.#sql('select id, pid, started, boot, host, name, since, address from user').all() as SqliteRow[]
    return rows.map(row => ({ ...(row as unknown as User), id: Number(row.id), pid: Number(row.pid), since: Number(row.since) }))
  }

  #sql(text: string): Statement {
    return this.#database.sql(text)
  }
}

function ownedBy(path: string, { pid, name, host, since, address }: User): LeaseError {
  const who = `${path} is owned by ${name} (${describe(pid)} on ${host}, since ${time(since)})`
  const advice = address ? `, which serves it at ${address}: connect there, or stop it first` : ': stop it first'
  const sleeps = stopped(pid) ? `. It is stopped: kill -CONT ${pid} resumes it` : ''
  const facts = { path, reason: 'owned', owner: pid, name, host, since, ...(address ? { address } : {}) }
  return new LeaseError('UNAVAILABLE', `${who}${advice}${sleeps}`, { facts })
}

/** A boot of the machine, whatever the namespaces. */
function bootIn(place: string): string {
  return place.split(' ')[0]!
}

function time(wall: number): string {
  return `${new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'medium', timeZone: 'UTC' }).format(wall)} UTC`
}
