/**
 * Copies of commands and outcomes. They cross the boundary between the kernel and its callers, and a caller may change an object after it has handed it
 * over, or after it was handed out. Bytes are written when a command is proposed, so a replica that applied a changed object would differ from all others.
 */

/** No command and no outcome is deeper. What is deeper has not the form of one: it is left as it is, and refused (form.ts). */
const DEEPEST = 4

/** A copy of plain data that shares nothing with its original that could be changed. */
export function copyOf<T>(value: T, depth = 0): T {
  if (typeof value !== 'object' || value === null || depth === DEEPEST) return value
  if (Array.isArray(value)) return value.map(item => (typeof item === 'object' ? copyOf(item, depth + 1) : item)) as T
  const copy: Record<string, unknown> = {}
  for (const name in value) {
    const field = value[name]
    copy[name] = typeof field === 'object' ? copyOf(field, depth + 1) : field
  }
  return copy as T
}
