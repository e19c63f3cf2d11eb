/**
 * Copies commands and outcomes where they cross the boundary of the kernel: a caller may change an object after handing it over, or after receiving it. A
 * command is encoded when it is proposed, so a replica that applied a changed object would differ from all others.
 */

/** No command or outcome is nested deeper. A deeper value is malformed: it is left as it is, and refused (codec/form.ts). */
const DEEPEST = 5

/** A deep copy of plain data. */
export function copyOf<T>(value: T, depth = 0): T {
  if (typeof value !== 'object' || value === null || depth === DEEPEST) return value
  if (Array.isArray(value)) {
    const items: unknown[] = []
    for (const item of value) items.push(typeof item === 'object' ? copyOf(item, depth + 1) : item)
    return items as T
  }
  const copy: Record<string, unknown> = {}
  for (const name in value) {
    const field = value[name]
    copy[name] = typeof field === 'object' ? copyOf(field, depth + 1) : field
  }
  return copy as T
}
