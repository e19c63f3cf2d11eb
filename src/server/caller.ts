/** Who sent a request: a client with a key, without one, or the operator. */

/** `key` is 0 for a caller without a key. Such a caller may do everything while no keys exist, and nothing once they do. */
export interface Caller {
  readonly key: number
  readonly name: string
  /** The hash of the secret that it sent. A key that is being rotated has two. */
  readonly secret?: string
  /** Has the operator's secret: acts for the store itself, and for any key that it names. */
  readonly operator?: true
}

/** Each connection without a key gets its own object, so that limits per caller are limits per connection. */
export function anonymousCaller(): Caller {
  return { key: 0, name: 'anonymous' }
}

/** A caller that proved that it may use the store itself. As above, each connection gets its own object. */
export function operatorCaller(): Caller {
  return { key: 0, name: 'operator', operator: true }
}
