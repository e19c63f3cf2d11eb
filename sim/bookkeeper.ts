/**
 * A program that keeps accounts as entries without a lease: it reads two of them and moves an amount by a transaction that compares their revisions. The
 * sum of all accounts never changes, however stale its reads and however often a transaction is sent twice.
 */
import { LeaseError } from '../src/errors.ts'
import type { Transaction } from '../src/kernel/command.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import type { Host } from './participants.ts'
import { ACCOUNTS, START } from './transactions.ts'
import type { Dice, World } from './world.ts'

export class Bookkeeper {
  readonly #world: World
  readonly #dice: Dice
  readonly #hosts: readonly Host[]
  readonly #session: string
  #sent = 0
  stopped = false

  constructor(world: World, dice: Dice, hosts: readonly Host[], number: number) {
    this.#world = world
    this.#dice = dice
    this.#hosts = hosts
    this.#session = `books ${number}`
    this.#again()
  }

  #again(): void {
    this.#world.later(this.#dice.between(40, 300), () => {
      if (this.stopped) return
      this.#again()
      void this.#work().catch(ignored)
    })
  }

  async #work(): Promise<void> {
    const host = this.#dice.pick(this.#hosts)
    if (host.replica === undefined) return
    const { value } = await host.replica.read({ kind: 'entries', prefix: 'kv' })
    const there = new Map(value.map(entry => [entry.key, entry]))
    if (ACCOUNTS.some(key => !there.has(key))) return void (await this.#open(host))
    const [from, to] = this.#dice.chance(0.5) ? [ACCOUNTS[0], ACCOUNTS[1]] : [ACCOUNTS[1], ACCOUNTS[2]]
    const amount = this.#dice.whole(1, 9)
    const after = (key: string, more: number) => ({ key, value: String(Number(there.get(key)!.value) + more) })
    await this.#transact(host, {
      kind: 'transaction',
      compare: [from, to].map(key => ({ key, field: 'revision', is: 'equal', number: there.get(key)!.revision })),
      success: [after(from, -amount), after(to, amount)],
      // Who came too late leaves a note, or takes it away again.
      failure: [{ key: 'kv/late', ...(this.#dice.chance(0.5) ? { delete: true } : { value: String(amount) }) }],
    })
  }

  #open(host: Host): Promise<Outcome> {
    return this.#transact(host, {
      kind: 'transaction',
      compare: ACCOUNTS.map(key => ({ key, field: 'created', is: 'equal' })),
      success: ACCOUNTS.map(key => ({ key, value: String(START) })),
    })
  }

  /** Sometimes twice, as after an answer that was lost. */
  async #transact(host: Host, command: Transaction): Promise<Outcome> {
    const op = { session: this.#session, seq: ++this.#sent, acked: Math.max(0, this.#sent - 20) }
    const first = host.propose(command, op)
    if (this.#dice.chance(0.2)) void host.propose(command, { ...op, again: true }).catch(ignored)
    return first
  }
}

function ignored(error: unknown): void {
  if (!(error instanceof LeaseError)) throw error
}
