/**
 * The processes that use the file, in a table for people: the error of a refused process names them. The lock (`file-lock.ts`)
 * decides, the table does not.
 *
 * The rows of killed processes stay behind. The next process that opens the file deletes them.
 */
import { hostname } from 'node:os'
import { type Clock, pause } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Ownership } from '../store-module.ts'
import type { FileDatabase } from './database.ts'
import type { Engine, SqliteRow, Statement } from './engine.ts'
import { isBusy } from './errors.ts'
import { FileLock } from './file-lock.ts'
import { alive, describe, pidNamespace, stopped, thisProcess } from './process.ts'

interface FileUser {
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
  readonly #own: Ownership | undefined
  readonly #lock: FileLock
  #me = 0

  constructor(database: FileDatabase, engine: Engine, clock: Clock, own: Ownership | undefined) {
    this.#database = database
    this.#clock = clock
    this.#own = own
    this.#lock = new FileLock(engine, `${database.path}-owner`, own !== undefined)
  }

  /** The row of this process; 0 before it has one. */
  get me(): number {
    return this.#me
  }

  /** Takes the lock, or throws an error that names who has it. */
  async enter(timeout: number): Promise<void> {
    const began = this.#clock.now()
    for (;;) {
      try {
        return this.#lock.take()
      } catch (error) {
        if (!isBusy(error)) throw error
      }
      const over = this.#clock.now() - began >= timeout
      const refusal = await this.#database.read(() => this.#refusal(over))
      if (refusal) throw refusal
      await pause(this.#clock, 5, undefined, { ref: true }) // a process is just opening or closing the file
    }
  }

  /**
   * Adds the row of this process and returns the current epoch. This process has the lock, so an owner that is still listed has ended or
   * has lost its lock: either way its epoch ends here.
   */
  register(): number {
    // An owner is alone and deletes all rows. A shared user cannot know whether a process in another container lives, and deleting its row
    // would delete the files that it is writing.
    for (const user of this.#all()) if (this.#own || this.#isAlive(user) === 'no') this.#sql('delete from user where id = ?').run(user.id)
    const { pid, started } = thisProcess()
    const { name = '', address = '' } = this.#own ?? {}
    const insert = this.#sql('insert into user (pid, started, boot, host, name, since, address) values (?, ?, ?, ?, ?, ?, ?)')
    const since = Math.floor(this.#clock.wall())
    this.#me = Number(insert.run(pid, started, this.#pidScope(), hostname(), name, since, address).lastInsertRowid)
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
        `${this.#database.path} no longer lists this process: another process has taken the file over, or removed the row`,
        {
          reason: 'owned',
          facts: { path: this.#database.path },
        },
      )
  }

  nameOf(id: number): string | undefined {
    return this.#all().find(user => user.id === id)?.name
  }

  /** Returns whether the file of the lock was removed or replaced: another process can take the lock of a new file. */
  hasLostLock(): boolean {
    return this.#lock.isReplaced()
  }

  /** Releases the lock. */
  leave(): void {
    this.#lock.release()
  }

  /** The error that names who has the lock. Undefined while no living process is listed, unless the timeout is `over`. */
  #refusal(over: boolean): LeaseError | undefined {
    const { path } = this.#database
    const { owner: id } = this.#database.state()
    const owner = this.#all().find(user => user.id === id)
    if (owner && (over || this.#isAlive(owner) === 'yes')) return ownedBy(path, owner)
    const pids = [...new Set(this.#all().flatMap(user => (this.#isAlive(user) === 'yes' ? [user.pid] : [])))]
    if (this.#own && pids.length > 0) {
      const message = `${path} cannot be owned while it is in shared use by ${pids.map(describe).join(', ')}: end them first, or share it too`
      return new LeaseError('UNAVAILABLE', message, { reason: 'used', facts: { path, users: pids } })
    }
    if (!over) return undefined
    const message = `${path} is in use by a process that cannot be named (in another container?): end it first`
    return new LeaseError('UNAVAILABLE', message, { reason: 'used', facts: { path } })
  }

  /** Returns the rows of processes that may be alive. An owner is alone. */
  living(): Set<number> {
    return new Set(this.#all().flatMap(user => (this.#own || this.#isAlive(user) === 'no' ? [] : [user.id])))
  }

  /** Returns whether the file was ever opened: then it has segments. */
  hadUsers(): boolean {
    return this.#sql("select 1 from sqlite_sequence where name = 'user' and seq > 0").get() !== undefined
  }

  #isAlive({ pid, started, boot }: FileUser): 'yes' | 'no' | 'unknown' {
    if (boot === this.#pidScope()) return alive({ pid, started }) ? 'yes' : 'no'
    return bootIn(boot) === bootIn(this.#pidScope()) ? 'unknown' : 'no'
  }

  /** The scope in which a pid and a start time are unique: a boot of this machine, and a namespace in it. */
  #pidScope(): string {
    return [this.#clock.boot(), pidNamespace()].join(' ').trim()
  }

  #all(): FileUser[] {
    const rows = this.#sql('select id, pid, started, boot, host, name, since, address from user').all() as SqliteRow[]
    return rows.map(row => ({ ...(row as unknown as FileUser), id: Number(row.id), pid: Number(row.pid), since: Number(row.since) }))
  }

  #sql(text: string): Statement {
    return this.#database.sql(text)
  }
}

function ownedBy(path: string, { pid, name, host, since, address }: FileUser): LeaseError {
  const owner = `${path} is owned by ${name} (${describe(pid)} on ${host}, since ${time(since)})`
  const advice = address ? `, which serves it at ${address}: connect there, or stop it first` : ': stop it first'
  const resume = stopped(pid) ? `. It is stopped: kill -CONT ${pid} resumes it` : ''
  const facts = { path, owner: pid, name, host, since, ...(address ? { address } : {}) }
  return new LeaseError('UNAVAILABLE', `${owner}${advice}${resume}`, { reason: 'owned', facts })
}

/** The boot of the machine, without the namespace. */
function bootIn(scope: string): string {
  return scope.split(' ')[0]!
}

function time(wall: number): string {
  return `${new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'medium', timeZone: 'UTC' }).format(wall)} UTC`
}
