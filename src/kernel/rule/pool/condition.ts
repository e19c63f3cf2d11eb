/** Conditions on the labels of members, and the kind that labels name. */
import type { PoolCondition } from '../../command.ts'

/** Returns whether members with these labels pass all conditions. */
export function matches(labels: ReadonlyMap<string, string>, conditions: readonly PoolCondition[]): boolean {
  for (const condition of conditions) if (!passes(labels.get(condition.label), condition)) return false
  return true
}

/** The label `kind`, or `model` where a member has none. */
export function kindOf(labels: ReadonlyMap<string, string>): string | undefined {
  return labels.get('kind') ?? labels.get('model')
}

const NONE: readonly string[] = []

function passes(value: string | undefined, { test, values = NONE }: PoolCondition): boolean {
  if (test === 'absent') return value === undefined
  if (value === undefined) return test === 'not-in'
  switch (test) {
    case 'present':
      return true
    case 'in':
      return values.includes(value)
    case 'not-in':
      return !values.includes(value)
  }
  const [has, than] = [decimal(value), decimal(values[0]!)]
  // A comparison with NaN is false: a label that is no number passes none of them.
  switch (test) {
    case 'less':
      return has < than
    case 'at-most':
      return has <= than
    case 'more':
      return has > than
    case 'at-least':
      return has >= than
  }
}

const DECIMAL = /^-?\d{1,15}(?:\.\d{1,15})?$/

/** The number that a text is; NaN if it is not a plain decimal number. */
export function decimal(text: string): number {
  return DECIMAL.test(text) ? Number(text) : Number.NaN
}
