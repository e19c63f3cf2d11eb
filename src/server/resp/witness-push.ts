/** Pushes the witness of the log (`lease.witness`) to a client that keeps it, whenever replies show that the log has grown. */
import type { RespWriter } from '../../wire/resp/writer.ts'

export class WitnessPush {
  #last: string | undefined

  /** Call it before the replies are written: a client with a reply but not its witness could not notice that the log lost what the reply says. */
  write(to: RespWriter, witness: string | undefined): void {
    if (to.protocol !== 3 || witness === undefined || witness === this.#last) return
    this.#last = witness
    to.push(2)
    to.raw('$13\r\nlease.witness\r\n')
    to.text(witness)
  }
}
