/** Operators do this with leases of any holder: policies, revocations, breaks and recalls. `LeaseClient` adds everything else. */
import { type Duration, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Command, PolicyRules } from '../kernel/command.ts'
import { checkOptionNames } from '../options.ts'

/** Which leases `revoke` ends: one, all of a holder, or all under a prefix. */
export type RevokeTarget = { readonly lease: number } | { readonly holder: string } | { readonly prefix: string }

export interface RevokeOptions {
  /**
   * Grant the resources to others at once, although the revoked holders may still act.
   * @default false
   */
  readonly force?: boolean | undefined
  /**
   * Who revokes, for the history.
   * @default the holder
   */
  readonly by?: string | undefined
}

export interface RecallOptions {
  /**
   * Who asks, and why.
   * @default the holder
   */
  readonly by?: string | undefined
}

export interface BreakOptions {
  /**
   * The holders may go on for this long.
   * @default 0: their leases end now
   */
  readonly after?: Duration | undefined
  /**
   * Who breaks, for the history.
   * @default the holder
   */
  readonly by?: string | undefined
}

export abstract class GoverningClient {
  abstract readonly holder: string

  /** Proposes a command and throws what was refused. */
  protected abstract change(command: Command): Promise<unknown>

  /**
   * Sets the policy of a prefix: the rules for all resources under it. Replaces the rules that were set there.
   *
   * @example
   * await leases.setPolicy('gpu/a100', { capacity: 8, ttlMax: 60_000 })
   */
  async setPolicy(prefix: string, rules: PolicyRules): Promise<void> {
    if (typeof rules !== 'object' || rules === null)
      throw new LeaseError(
        'INVALID',
        'setPolicy takes rules: write setPolicy(prefix, { capacity: 2 }). To remove a policy, use deletePolicy',
      )
    await this.change({ kind: 'policy', prefix, rules })
  }

  /** Removes the policy of a prefix. Rejects with `NOT_FOUND` if there is none. */
  async deletePolicy(prefix: string): Promise<void> {
    await this.change({ kind: 'policy', prefix })
  }

  /**
   * Ends leases of any holder. Their resources stay frozen until the holders have stopped, or their terms have run.
   *
   * @example
   * await leases.revoke({ prefix: 'jobs' })
   */
  async revoke(target: RevokeTarget, options: RevokeOptions = {}): Promise<void> {
    checkOptionNames('revoke', options, ['force', 'by'])
    const { force, by = this.holder } = options
    await this.change({ kind: 'revoke', target, by, ...(force !== undefined && { force }) })
  }

  /**
   * Ends the leases that hold a resource, at most `after` from now: their holders are told at once and have that long to finish. A second break
   * can only shorten it. The resource goes to the next waiter when its holder has stopped, or its term has run.
   *
   * @example
   * await leases.break('deploy/prod', { after: '30s' })
   */
  async break(resource: string, options: BreakOptions = {}): Promise<void> {
    checkOptionNames('break', options, ['after', 'by'])
    const { after, by = this.holder } = options
    await this.change({ kind: 'break', resource, by, ...(after !== undefined && { after: milliseconds(after, 'after') }) })
  }

  /** Asks the holders of a resource to release it: `lease.recalled` fires there, and its reason says who asks. */
  async recall(resource: string, options: RecallOptions = {}): Promise<void> {
    checkOptionNames('recall', options, ['by'])
    const { by = this.holder } = options
    await this.change({ kind: 'recall', resource, by })
  }
}
