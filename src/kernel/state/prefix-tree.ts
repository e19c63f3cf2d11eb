/** A tree of names by their segments: finds the values under a prefix without looking at others. */
class Node<T> {
  value: T | undefined
  below: Map<string, Node<T>> | undefined
}

export class PrefixTree<T> {
  readonly #root = new Node<T>()

  set(name: string, value: T): void {
    let node = this.#root
    for (const segment of name.split('/')) {
      node.below ??= new Map()
      let next = node.below.get(segment)
      if (next === undefined) {
        next = new Node()
        node.below.set(segment, next)
      }
      node = next
    }
    node.value = value
  }

  delete(name: string): void {
    const path: Node<T>[] = [this.#root]
    const segments = name.split('/')
    for (const segment of segments) {
      const next = path.at(-1)!.below?.get(segment)
      if (next === undefined) return
      path.push(next)
    }
    path.at(-1)!.value = undefined
    for (let i = segments.length; i > 0; i--) {
      const { value, below } = path[i]!
      if (value !== undefined || below !== undefined) return
      const above = path[i - 1]!
      above.below!.delete(segments[i - 1]!)
      if (above.below!.size === 0) above.below = undefined
    }
  }

  /** The values of the names `PREFIX/ANY/NAME`, in no particular order. Looks at the segments after the prefix, and not at what is below them. */
  *named(prefix: string, name: string): Generator<T, void, void> {
    for (const { below } of this.#at(prefix)?.below?.values() ?? []) {
      const value = below?.get(name)?.value
      if (value !== undefined) yield value
    }
  }

  /** Returns whether there is a value under a prefix. */
  has(prefix: string): boolean {
    return this.#at(prefix) !== undefined
  }

  #at(prefix: string): Node<T> | undefined {
    let node: Node<T> | undefined = this.#root
    for (const segment of prefix === '' ? [] : (prefix.endsWith('/') ? prefix.slice(0, -1) : prefix).split('/'))
      node = node?.below?.get(segment)
    return node
  }

  /** The values under a prefix, in no particular order. Matches whole segments; the prefix may end with a slash, and the empty one matches everything. */
  *under(prefix: string): Generator<T, void, void> {
    const node = this.#at(prefix)
    if (node === undefined) return
    const pending = [node]
    for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
      if (next.value !== undefined) yield next.value
      if (next.below !== undefined) for (const below of next.below.values()) pending.push(below)
    }
  }
}
