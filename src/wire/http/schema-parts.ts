/** Schemas of requests and answers are made of these parts. */
import Type, { type TObject, type TProperties } from 'typebox'
import { whole } from './command-schema.ts'

/** Of requests: the server refuses a field that it does not know. */
export function closed<P extends TProperties>(properties: P, description?: string): TObject<P> {
  return Type.Object(properties, { additionalProperties: false, ...(description !== undefined && { description }) })
}

export const optional = Type.Optional

export const yes = (description: string) => Type.Boolean({ description })

export const revision = whole('The revision of the state that the answer describes.')
export const at = whole('Wall time in ms, for people: no decision depends on it.')
export const op = optional(
  Type.String({
    minLength: 1,
    maxLength: 128,
    description: 'Makes a repeated request safe: the same op has one effect and one answer, within the window that the guarantees state.',
  }),
)

/** Answers are open: fields may be added, and none is removed. */
export const answer = <P extends TProperties>(properties: P) => Type.Object(properties)
/** An object whose fields are described elsewhere. */
export const bag = (description: string) => Type.Object({}, { additionalProperties: true, description })
export const status = Type.Enum(['waiting', 'live', 'suspect', 'frozen'])
