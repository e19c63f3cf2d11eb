/** A nonce has 64 bits without a sign; a bigint of Postgres has one. */
export function signed(nonce: bigint): string {
  return BigInt.asIntN(64, nonce).toString()
}

export function unsigned(text: string): bigint {
  return BigInt.asUintN(64, BigInt(text))
}
