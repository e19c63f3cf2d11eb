/** When one RESP connection executes its commands: at once, or in the turn of its caller. */
import { beginsWithRenewal } from '../../wire/messages.ts'
import type { CommandParser } from '../../wire/resp/command-parser.ts'
import type { Caller } from '../access-control.ts'
import { type CallerTurns, type Party, partyOf } from '../caller-turns.ts'

export class SessionTurns {
  readonly #turns: CallerTurns
  readonly #address: string | undefined
  /** Whose turns they are. Only this class changes it. */
  party: Party
  /** The next command waits for its turn. */
  isAwaited = false

  /** `peer`: the client's address and port, or `local`. */
  constructor(turns: CallerTurns, peer: string, caller: Caller) {
    this.#turns = turns
    this.#address = peer === 'local' ? undefined : peer.slice(0, peer.lastIndexOf(':'))
    this.party = partyOf(caller, this.#address)
  }

  set caller(caller: Caller) {
    this.party = partyOf(caller, this.#address)
  }

  /** The command in `args` must wait: it is put back, and `resume` is called in its turn. */
  wait(args: CommandParser, resume: () => void): void {
    const urgent = isRenewal(args)
    args.putBack()
    this.isAwaited = true
    const resumeInTurn = () => {
      this.isAwaited = false
      resume()
    }
    this.#turns.wait(this.party, resumeInTurn, urgent)
  }

  /** Resolves in a later turn of the connection's caller: what takes long is done in slices. */
  later(): Promise<void> | undefined {
    return this.#turns.next(this.party)
  }

  /** Undefined if the connection may go on now. Otherwise resolves in its turn. */
  next(): Promise<void> | undefined {
    return this.#turns.turn(this.party)
  }
}

function isRenewal(args: CommandParser): boolean {
  return args.is(0, 'LEASE.RENEW') || (args.is(0, 'LEASE.BATCH') && args.count > 1 && beginsWithRenewal(args.bytes(1)))
}
