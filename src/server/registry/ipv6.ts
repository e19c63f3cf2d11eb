/**
 * Parses an IPv6 address, as `net.isIPv6` accepts it, without a zone, into its eight 16-bit words. The last two may be written as an IPv4
 * address.
 */
export function wordsOf(address: string): number[] {
  const dotted = /(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(address)
  const text =
    dotted === null
      ? address
      : address.slice(0, dotted.index) + [1, 3].map(i => ((Number(dotted[i]) << 8) | Number(dotted[i + 1])).toString(16)).join(':')
  const [left = '', right] = text.split('::')
  const words = (part: string) => (part === '' ? [] : part.split(':').map(word => Number.parseInt(word, 16)))
  const head = words(left)
  const end = words(right ?? '')
  return right === undefined ? head : [...head, ...new Array<number>(8 - head.length - end.length).fill(0), ...end]
}
