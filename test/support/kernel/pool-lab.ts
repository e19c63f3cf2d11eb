/** A kernel with a pool `g`, its members and its waiters. */
import type { PoolRequest } from '../../../src/kernel/command.ts'
import { type Options, World } from './world.ts'

interface Offer {
  readonly units?: number
  readonly labels?: Readonly<Record<string, string>>
}

export class PoolLab extends World {
  constructor(members: readonly string[]) {
    super()
    for (const member of members) this.offer(member)
  }

  offer(member: string, { units = 1, labels }: Offer = {}): number {
    const value = JSON.stringify({ units, ...(labels && { labels }) })
    return this.acquire(`host-${member}`, [], { entries: [{ key: `pool/g/${member}`, value }] }).lease
  }

  /** The account is the first letter of the holder. */
  take(holder: string, request: Omit<PoolRequest, 'pool'> = {}, options: Options = {}): number {
    const outcome = this.ask(holder, [], { pool: { pool: 'g', account: holder.charAt(0), ...request }, wait: true, ...options })
    if (outcome.kind !== 'granted' && outcome.kind !== 'queued') throw new Error(JSON.stringify(outcome))
    return outcome.lease
  }

  held(lease: number): number {
    return this.lease(lease)?.grants.length ?? 0
  }

  tick(elapsed: number): void {
    this.do({ kind: 'tick', n: this.state.tick + 1, elapsed })
  }
}
