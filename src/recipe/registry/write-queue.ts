/** Runs one write at a time, each with the newest value: a repeated write must not arrive after a newer one. */
export class WriteQueue {
  #last: Promise<void> = Promise.resolve()
  #next: Promise<void> | undefined

  write(write: () => Promise<void>): Promise<void> {
    this.#next ??= this.#last
      .catch(() => {}) // reported to the caller of that write
      .then(() => {
        this.#next = undefined
        this.#last = write()
        return this.#last
      })
    return this.#next
  }
}
