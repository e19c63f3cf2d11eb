/** Makes a failing list of steps short: faster than fast-check's own way for long programs, whose steps have many fields. */

/** A part of `steps` that still fails and of which no single step can be left out. */
export async function shortest<T>(steps: readonly T[], fails: (steps: readonly T[]) => boolean | Promise<boolean>): Promise<readonly T[]> {
  let left = steps
  for (let size = Math.ceil(left.length / 2); size >= 1; size = Math.floor(size / 2)) {
    let isShorter = true
    while (isShorter) {
      isShorter = false
      for (let at = left.length - size; at > -size; at -= size) {
        const from = Math.max(0, at)
        const without = [...left.slice(0, from), ...left.slice(from + size)]
        if (without.length === left.length || !(await fails(without))) continue
        left = without
        isShorter = true
      }
      if (size > 1) break
    }
  }
  return left
}
