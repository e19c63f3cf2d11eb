/**
 * Finds the first error of a value against its schema, as one sentence.
 *
 * A validator that collects all errors visits every part of a hostile body, at a microsecond or more each. This one checks the size of a list or object before
 * its parts, and stops at the first error.
 */
import type { TSchema } from 'typebox'
import { Compile, type Validator } from 'typebox/compile'

/** The schema keywords that this file reads. The validator checks all others. */
interface SchemaKeywords {
  readonly type?: string | readonly string[]
  readonly items?: TSchema
  readonly maxItems?: number
  readonly properties?: Readonly<Record<string, TSchema>>
  readonly patternProperties?: Readonly<Record<string, TSchema>>
  readonly additionalProperties?: boolean | object
  readonly required?: readonly string[]
  readonly maxProperties?: number
  readonly anyOf?: readonly TSchema[]
  readonly const?: unknown
}

const validators = new WeakMap<object, Validator>()

export function matches(schema: TSchema, value: unknown): boolean {
  return validatorOf(schema).Check(value)
}

/** Call this only with a value that does not match its schema. */
export function firstError(schema: TSchema, value: unknown): string {
  return errorIn(schema, value, [])
}

function validatorOf(schema: TSchema): Validator {
  let validator = validators.get(schema)
  if (validator === undefined) {
    validator = Compile(schema) as Validator
    validators.set(schema, validator)
  }
  return validator
}

function errorIn(schema: TSchema, value: unknown, path: readonly string[]): string {
  const keywords = schema as SchemaKeywords
  if (keywords.anyOf !== undefined) return errorInChoice(keywords.anyOf, schema, value, path)
  if (Array.isArray(value) && keywords.items !== undefined) return errorInList(keywords, schema, value, path)
  if (isObject(value) && keywords.type === 'object') return errorInObject(keywords, schema, value, path)
  return errorOf(schema, value, path)
}

function errorInList(
  { items, maxItems = Number.POSITIVE_INFINITY }: SchemaKeywords,
  schema: TSchema,
  value: readonly unknown[],
  path: readonly string[],
) {
  if (value.length > maxItems) return `${nameOf(path)} must not have more than ${maxItems} items, not ${value.length}`
  const validator = validatorOf(items!)
  const wrong = value.findIndex(item => !validator.Check(item))
  return wrong < 0 ? errorOf(schema, value, path) : errorIn(items!, value[wrong], [...path, String(wrong)])
}

function errorInObject(
  keywords: SchemaKeywords,
  schema: TSchema,
  value: Readonly<Record<string, unknown>>,
  path: readonly string[],
): string {
  const { properties = {}, patternProperties = {}, required = [], maxProperties = Number.POSITIVE_INFINITY } = keywords
  const patterns = Object.values(patternProperties)
  let fields = 0
  for (const field in value) {
    if (++fields > maxProperties) return `${nameOf(path)} must not have more than ${maxProperties} properties`
    if (keywords.additionalProperties !== false || patterns.length > 0 || Object.hasOwn(properties, field)) continue
    const known = path.length === 0 ? `. The fields are ${Object.keys(properties).join(', ')}` : ''
    return `there is no field ${joined([...path, field])}${known}`
  }
  const missing = required.find(field => !Object.hasOwn(value, field))
  if (missing !== undefined) return `${joined([...path, missing])} is missing`
  for (const field of Object.keys(properties))
    if (Object.hasOwn(value, field) && !matches(properties[field]!, value[field]))
      return errorIn(properties[field]!, value[field], [...path, field])
  if (patterns.length === 1)
    for (const field in value) if (!matches(patterns[0]!, value[field])) return errorIn(patterns[0]!, value[field], [...path, field])
  return errorOf(schema, value, path)
}

/** The field `kind` selects one choice. Errors against the other choices would only mislead. */
function errorInChoice(choices: readonly TSchema[], schema: TSchema, value: unknown, path: readonly string[]): string {
  const kindOf = (choice: TSchema) => (choice as SchemaKeywords).properties?.kind as SchemaKeywords | undefined
  if (!isObject(value) || choices.some(choice => kindOf(choice)?.const === undefined)) return errorOf(schema, value, path)
  const selected = choices.find(choice => kindOf(choice)!.const === value.kind)
  if (selected !== undefined) return errorIn(selected, value, path)
  return `${joined([...path, 'kind'])} must be one of ${choices.map(choice => String(kindOf(choice)!.const)).join(', ')}, not ${shown(value.kind)}`
}

/** The error is in the value itself, not in one of its parts. */
function errorOf(schema: TSchema, value: unknown, path: readonly string[]): string {
  // Only the type of a list or object can be wrong here. An empty one has the same error, and is cheap to validate.
  const sample = Array.isArray(value) ? [] : isObject(value) ? {} : value
  const [first] = validatorOf(schema).Errors(sample) as unknown as readonly { readonly params: object; readonly message: string }[]
  if (first === undefined) return `${nameOf(path)} does not match the schema`
  const choices = (first.params as { allowedValues?: unknown[] }).allowedValues
  return `${nameOf(path)} ${choices === undefined ? first.message : `must be one of ${choices.join(', ')}`}, not ${shown(value)}`
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function nameOf(path: readonly string[]): string {
  return path.length === 0 ? 'it' : joined(path)
}

function joined(path: readonly string[]): string {
  return path.map(part => part.slice(0, 64)).join('.')
}

function shown(value: unknown): string {
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'a list' : 'an object'
  return typeof value === 'string' ? `'${value.slice(0, 32)}'` : String(value)
}
