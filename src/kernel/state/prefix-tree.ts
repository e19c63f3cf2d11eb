/** Values by names of segments, so that what is under a prefix is found without looking at anything else. */
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

  /** In no order that means anything. A prefix is taken by whole segments, with or without its last slash; the empty one is over everything. */
  *under(prefix: string): Generator<T, void, void> {
    let node: Node<T> | undefined = this.#root
    for (const segment of prefix === '' ? [] : (prefix.endsWith('/') ? prefix.slice(0, -1) : prefix).split('/')) {
      node = node.below?.get(segment)
      if (node === undefined) return
    }
    const pending = [node]
    for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
      if (next.value !== undefined) yield next.value
      if (next.below !== undefined) for (const below of next.below.values()) pending.push(below)
    }
  }
}
