/** The accounts of a pool, by name. They are divided into slices by their names, so that no command has to look at all of them. */
export const ACCOUNT_SLICES = 64

export class AccountTable<Account> extends Map<string, Account> {
  readonly #slices = Array.from({ length: ACCOUNT_SLICES }, () => new Set<Account>())

  override set(name: string, account: Account): this {
    this.#slices[sliceOf(name)]!.add(account)
    return super.set(name, account)
  }

  override delete(name: string): boolean {
    const account = this.get(name)
    if (account !== undefined) this.#slices[sliceOf(name)]!.delete(account)
    return super.delete(name)
  }

  /** In no particular order. */
  slice(number: number): ReadonlySet<Account> {
    return this.#slices[number % ACCOUNT_SLICES]!
  }
}

export function sliceOf(name: string): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193)
  return (hash >>> 16) % ACCOUNT_SLICES
}
