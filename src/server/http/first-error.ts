/**
 * The first thing that is wrong with a value, in one sentence.
 *
 * A validator that collects every error visits all of a hostile body, at a microsecond or more for each part. This one checks the size of a list or an
 * object before its parts, and stops at the first part that is wrong.
 */
import type { TSchema } from 'typebox'
import { Compile, type Validator } from 'typebox/compile'

/** The keywords that this file looks at. Everything else is left to the validator of the part where it stands. */
interface Shape {
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

export function isRight(schema: TSchema, value: unknown): boolean {
  return validatorOf(schema).Check(value)
}

/** One sentence about a value that is not as its schema says. */
export function firstError(schema: TSchema, value: unknown): string {
  return within(schema, value, [])
}

function validatorOf(schema: TSchema): Validator {
  let validator = validators.get(schema)
  if (validator === undefined) {
    validator = Compile(schema) as Validator
    validators.set(schema, validator)
  }
  return validator
}

function within(schema: TSchema, value: unknown, path: readonly string[]): string {
  const shape = schema as Shape
  if (shape.anyOf !== undefined) return ofAny(shape.anyOf, schema, value, path)
  if (Array.isArray(value) && shape.items !== undefined) return inList(shape, schema, value, path)
  if (isObject(value) && shape.type === 'object') return inObject(shape, schema, value, path)
  return here(schema, value, path)
}

function inList(
  { items, maxItems = Number.POSITIVE_INFINITY }: Shape,
  schema: TSchema,
  value: readonly unknown[],
  path: readonly string[],
) {
  if (value.length > maxItems) return `${named(path)} must not have more than ${maxItems} items, not ${value.length}`
  const validator = validatorOf(items!)
  const wrong = value.findIndex(item => !validator.Check(item))
  return wrong < 0 ? here(schema, value, path) : within(items!, value[wrong], [...path, String(wrong)])
}

function inObject(shape: Shape, schema: TSchema, value: Readonly<Record<string, unknown>>, path: readonly string[]): string {
  const { properties = {}, patternProperties = {}, required = [], maxProperties = Number.POSITIVE_INFINITY } = shape
  const patterns = Object.values(patternProperties)
  let fields = 0
  for (const field in value) {
    if (++fields > maxProperties) return `${named(path)} must not have more than ${maxProperties} properties`
    if (shape.additionalProperties !== false || patterns.length > 0 || Object.hasOwn(properties, field)) continue
    const known = path.length === 0 ? `; there are ${Object.keys(properties).join(', ')}` : ''
    return `there is no field ${at([...path, field])}${known}`
  }
  const missing = required.find(field => !Object.hasOwn(value, field))
  if (missing !== undefined) return `${at([...path, missing])} is missing`
  for (const field of Object.keys(properties))
    if (Object.hasOwn(value, field) && !isRight(properties[field]!, value[field]))
      return within(properties[field]!, value[field], [...path, field])
  if (patterns.length === 1)
    for (const field in value) if (!isRight(patterns[0]!, value[field])) return within(patterns[0]!, value[field], [...path, field])
  return here(schema, value, path)
}

/** A choice is told by its kind: what is wrong with the others concerns nobody. */
function ofAny(choices: readonly TSchema[], schema: TSchema, value: unknown, path: readonly string[]): string {
  const kindOf = (choice: TSchema) => (choice as Shape).properties?.kind as Shape | undefined
  if (!isObject(value) || choices.some(choice => kindOf(choice)?.const === undefined)) return here(schema, value, path)
  const meant = choices.find(choice => kindOf(choice)!.const === value.kind)
  if (meant !== undefined) return within(meant, value, path)
  return `${at([...path, 'kind'])} must be one of ${choices.map(choice => String(kindOf(choice)!.const)).join(', ')}, not ${shown(value.kind)}`
}

/** What is wrong with it is nothing that stands inside it. */
function here(schema: TSchema, value: unknown, path: readonly string[]): string {
  // Of a list or an object only its kind can be wrong by now, and an empty one shows that as well.
  const stand = Array.isArray(value) ? [] : isObject(value) ? {} : value
  const [first] = validatorOf(schema).Errors(stand) as unknown as readonly { readonly params: object; readonly message: string }[]
  if (first === undefined) return `${named(path)} is not what was expected`
  const choices = (first.params as { allowedValues?: unknown[] }).allowedValues
  return `${named(path)} ${choices === undefined ? first.message : `must be one of ${choices.join(', ')}`}, not ${shown(value)}`
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function named(path: readonly string[]): string {
  return path.length === 0 ? 'it' : at(path)
}

function at(path: readonly string[]): string {
  return path.map(part => part.slice(0, 64)).join('.')
}

function shown(value: unknown): string {
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'a list' : 'an object'
  return typeof value === 'string' ? `'${value.slice(0, 32)}'` : String(value)
}
