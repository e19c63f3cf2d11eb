/** A nonce is unsigned, and a bigint of Postgres is signed. */
export function signed(nonce: bigint): string {
  return BigInt.asIntN(64, nonce).toString()
}

export function unsigned(text: string): bigint {
  return BigInt.asUintN(64, BigInt(text))
}
