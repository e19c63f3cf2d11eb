/** Ages by the clock of Redis. They count as known only if that clock is trusted, and only within one run of one server: another clock may be ahead. */
export class EngineAges {
  readonly trusted: boolean
  /** The run id of the server, as read when the connection was made. Empty if the server does not reveal it. */
  server = ''

  constructor(trusted: boolean) {
    this.trusted = trusted
  }

  /** The least age in ms. `age`: by the clock of the server. `here`: 1 if that server, in its present run, wrote what is so old. */
  of(age: number, here: string): number {
    return this.trusted && this.server !== '' && here === '1' ? Math.max(0, age) : 0
  }
}
