/** The fields of a command or record follow each other in a log in this layout. */
import { NewerFormatError, type Reader, type Writer } from './bytes.ts'
import type { Fields } from './field-type.ts'

export interface Layout<T> {
  write(to: Writer, value: T): void
  read(from: Reader): T
}

type Values = Record<string, unknown>

function isEmpty(value: unknown, empty: unknown): boolean {
  return value === undefined || value === empty || (Array.isArray(value) && value.length === 0)
}

/**
 * One field after the other. A field that is left out is written as its type's empty value. Where the type has none, a byte says whether
 * the field follows.
 */
export function inOrder<T extends object>(kind: string | undefined, fields: Fields): Layout<T> {
  const steps = Object.entries(fields).map(([name, { type, presence }]) => ({ name, type, presence }))
  return {
    write(to, values) {
      for (const { name, type, presence } of steps) {
        const value = (values as Values)[name]
        if (presence === 'needed' || type.empty !== undefined) type.write(to, value ?? type.empty)
        else {
          to.bool(value !== undefined)
          if (value !== undefined) type.write(to, value)
        }
      }
    },
    read(from) {
      // A literal that grows is many times faster here than a copy of an object.
      const values: Values = kind === undefined ? {} : { kind }
      for (const { name, type, presence } of steps) {
        if (presence === 'needed') values[name] = type.read(from)
        else if (type.empty === undefined) {
          if (from.bool()) values[name] = type.read(from)
        } else {
          const value = type.read(from)
          if (!isEmpty(value, type.empty)) values[name] = value
        }
      }
      return values as T
    },
  }
}

export interface MaskedLayout<T> extends Layout<T> {
  /** As `read`, after the mask. */
  readAfter(mask: number, from: Reader): T
}

/**
 * A mask that says which optional fields follow, then the needed fields, then those. A flag is its bit alone; a choice has a bit for each
 * name, one after the other. `bits` gives each optional field its first bit, which never changes.
 */
export function masked<T extends object>(kind: string, fields: Fields, bits: Readonly<Record<string, number>>): MaskedLayout<T> {
  const all = Object.entries(fields)
  const needed = inOrder<Values>(kind, Object.fromEntries(all.filter(([name]) => bits[name] === undefined)))
  const optional = all.flatMap(([name, { type }]) => {
    const bit = bits[name]
    if (bit === undefined) return []
    const { choices, surface } = type
    return {
      name,
      type,
      bit,
      own: choices === undefined ? bit : bit * (2 ** choices.length - 1),
      isBitOnly: choices !== undefined || surface === 'flag',
    }
  })
  const known = optional.reduce((sum, { own }) => sum | own, 0)

  function readAfter(mask: number, from: Reader): T {
    if (mask > known) throw new NewerFormatError('a command with fields not known here')
    const values = needed.read(from)
    for (const { name, type, bit, own, isBitOnly } of optional) {
      const set = mask & own
      if (set === 0) continue
      values[name] = !isBitOnly ? type.read(from) : type.choices === undefined ? true : type.choices[31 - Math.clz32(set / bit)]
    }
    return values as T
  }

  return {
    readAfter,
    read: from => readAfter(from.uint(), from),
    write(to, command) {
      const values = command as Values
      let mask = 0
      for (const { name, type, bit } of optional) {
        const value = values[name]
        if (!isEmpty(value, type.empty)) mask |= type.choices === undefined ? bit : bit << type.choices.indexOf(value as string)
      }
      to.uint(mask)
      needed.write(to, values)
      for (const { name, type, bit, isBitOnly } of optional) if (mask & bit && !isBitOnly) type.write(to, values[name])
    },
  }
}
