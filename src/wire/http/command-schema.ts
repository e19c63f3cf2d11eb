/** JSON schemas of the fields of commands, made from the command table and its descriptions: bodies of requests over HTTP have the kernel's fields by their names. */
import Type, { type TOptional, type TSchema, type TUnsafe } from 'typebox'
import type { Field, Fields, FieldType, Presence, Surface } from '../../kernel/codec/field-type.ts'
import { COMMAND_TABLE, type CommandTable } from '../../kernel/command-table.ts'
import { NAME_BYTES } from '../../kernel/name.ts'
import { COMMAND_DESCRIPTIONS, type Descriptions, descriptionsOf } from '../field-descriptions.ts'

/** Counts and numbers of things. A larger JSON number would silently become another one. */
export function whole(description?: string) {
  return Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, ...(description !== undefined && { description }) })
}

export const leaseId = whole('The number of a lease.')

export function text(description: string, maxLength = NAME_BYTES) {
  return Type.String({ maxLength, description })
}

export const name = text('1 to 512 bytes of UTF-8; / separates segments.')

/** One schema and no union, so that an error is one sentence. */
export function duration(description: string) {
  return Type.Unsafe<number | string>({
    type: ['integer', 'string'],
    minimum: 0,
    maximum: Number.MAX_SAFE_INTEGER,
    maxLength: 32,
    description: `${description === '' ? '' : `${description} `}Whole milliseconds, or a text such as '30s', '5m', '1h30m'.`,
  })
}

/** A value in JSON: durations may be texts, pairs are an object, everything else is as in the kernel. */
type JsonValue<T, S extends Surface> = S extends 'duration' ? number | string : S extends 'pairs' ? Readonly<Record<string, string>> : T

type JsonOf<F> =
  F extends Field<infer T, infer P extends Presence, infer S extends Surface>
    ? P extends 'needed'
      ? TUnsafe<JsonValue<T, S>>
      : TOptional<TUnsafe<JsonValue<T, S>>>
    : never

function jsonOf(type: FieldType<unknown>, about: string): TSchema {
  const described = about === '' ? {} : { description: about }
  switch (type.surface) {
    case 'count':
      return whole(about === '' ? undefined : about)
    case 'id':
      return about === '' ? leaseId : whole(about)
    case 'integer':
      return Type.Integer({ minimum: type.range![0], maximum: type.range![1], ...described })
    case 'duration':
      return duration(about)
    case 'name':
      return about === '' ? name : text(about)
    case 'text':
      return Type.String({ maxLength: type.max ?? NAME_BYTES, ...described })
    case 'flag':
      return Type.Boolean(described)
    case 'choice':
      return Type.Enum([...type.choices!], described)
    case 'list':
      return Type.Array(jsonOf(type.items!, ''), { maxItems: type.max!, ...described })
    case 'pairs':
      return Type.Record(Type.String(), jsonOf(type.items!.fields!.value!.type, ''), { maxProperties: type.max!, ...described })
    case 'record':
      return Type.Object(propertiesOf(type.fields!, descriptionsOf(type.fields!)), { additionalProperties: false, ...described })
    default:
      throw new Error(`a field of type ${type.surface} has no schema`)
  }
}

function propertiesOf(fields: Fields, descriptions: Descriptions, names: readonly string[] = Object.keys(fields)): Record<string, TSchema> {
  return Object.fromEntries(
    names.map(name => {
      const { type, presence } = fields[name]!
      const schema = jsonOf(type, descriptions[name]!)
      return [name, presence === 'needed' ? schema : Type.Optional(schema)]
    }),
  )
}

/** The properties of these fields, or of all of them. */
export function schemaOf<F extends object, N extends string & keyof F>(
  fields: F,
  ...names: readonly N[]
): { readonly [K in N]: JsonOf<F[K]> } {
  return propertiesOf(fields as Fields, descriptionsOf(fields as Fields), names.length === 0 ? Object.keys(fields) : names) as never
}

/** The properties of these fields of a command, or of all of them. */
export function fieldsOf<K extends keyof typeof COMMAND_DESCRIPTIONS, N extends string & keyof CommandTable[K]['fields']>(
  kind: K,
  ...names: readonly N[]
): { readonly [F in N]: JsonOf<CommandTable[K]['fields'][F]> } {
  const { fields } = COMMAND_TABLE[kind]
  return propertiesOf(fields, COMMAND_DESCRIPTIONS[kind], names.length === 0 ? Object.keys(fields) : names) as never
}
