/** Routes of several groups share this: proposing a command, read options, and lists. */
import { parseDuration } from '../../duration.ts'
import { operationNamed } from '../../kernel/codec/digest.ts'
import type { Fields, FieldType } from '../../kernel/codec/field-type.ts'
import type { Command, Operation } from '../../kernel/command.ts'
import { COMMAND_TABLE } from '../../kernel/command-table.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import type { View } from '../../lessor.ts'
import { fitsOnePiece, jsonPieces } from '../json-pieces.ts'
import { HttpFailure } from './failure.ts'
import { type HttpResponse, json, type RouteContext } from './route.ts'

/** Memory that one item of a list takes until it is sent, about. */
const ITEM_BYTES = 512
/** Maximum items in a list if the request sets no limit. */
export const DEFAULT_LIST_LIMIT = 10_000

/** The operation that makes a repeated request safe, if the request names one. */
export function operationOf(command: Command, op: string | undefined): { readonly op?: Operation } {
  return op === undefined ? {} : { op: operationNamed(op, command) }
}

/** Proposes a command for the caller of a request. */
export function propose({ guarded, caller }: RouteContext, command: Command, op: string | undefined): Promise<Outcome> {
  return guarded.propose(caller, command, operationOf(command, op))
}

/** Proposes the command whose fields are in the body of a request, and those in `more` unless the body has them. */
export function proposeBody(context: RouteContext<{ readonly op?: string }>, kind: Command['kind'], more: object = {}): Promise<Outcome> {
  const { op, ...json } = context.body
  return propose(context, { kind, ...more, ...fieldsFrom(COMMAND_TABLE[kind].fields, json) } as Command, op)
}

/** Read options of a request: at the end of the log, or at a revision that the client has seen. */
export function readOptions({ request, query }: RouteContext<unknown, { readonly consistent?: boolean }>): {
  readonly consistent?: boolean
  readonly atLeast?: number
} {
  const seen = request.header('leasehold-revision')
  if (seen !== undefined && !(/^\d{1,16}$/.test(seen) && Number.isSafeInteger(Number(seen))))
    throw new HttpFailure('INVALID', 'the header Leasehold-Revision must be the number of a revision')
  return { ...(query.consistent !== undefined && { consistent: query.consistent }), ...(seen !== undefined && { atLeast: Number(seen) }) }
}

/** As `readOptions`. A long list is given up when the client disconnects. */
export function listOptions(
  context: RouteContext<unknown, { readonly consistent?: boolean }>,
): ReturnType<typeof readOptions> & { readonly signal: AbortSignal } {
  return { ...readOptions(context), signal: context.request.gone() }
}

/** A list under its name, with its revision. `shown`: what is written of an item. A long list is written in pieces. */
export function list<T extends object>(
  { guarded, caller }: RouteContext,
  name: string,
  { revision, more, value: items }: Pick<View, 'revision' | 'more'> & { readonly value: readonly T[] },
  shown: (item: T) => object = item => item,
): HttpResponse {
  const rest = { revision, ...(more && { more }) }
  if (fitsOnePiece(items)) return json(200, { [name]: items.map(shown), ...rest }, revision)
  return {
    status: 200,
    headers: { 'Leasehold-Revision': String(revision) },
    body: jsonPieces(name, items, rest, { shown, turn: () => guarded.nextTurn(caller) }),
    heldBytes: items.length * ITEM_BYTES,
  }
}

export function optionalMs(duration: string | number | undefined, name: string): number | undefined {
  return duration === undefined ? undefined : parseDuration(duration, name)
}

/**
 * The fields of a command, from JSON that its schema has accepted. The table says what JSON writes in another way than the kernel: durations may be
 * texts, and pairs are an object. Undefined fields are left out.
 */
export function fieldsFrom(fields: Fields, json: object): Record<string, unknown> {
  const values: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(json)) if (value !== undefined) values[name] = valueFrom(fields[name]!.type, value, name)
  return values
}

function valueFrom({ surface, fields }: FieldType<unknown>, json: unknown, name: string): unknown {
  if (surface === 'duration') return parseDuration(json as number | string, name)
  if (surface === 'pairs') return Object.entries(json as object)
  return surface === 'record' ? fieldsFrom(fields!, json as object) : json
}

/** Leaves out undefined fields: the kernel accepts missing fields, but not undefined ones. */
export function defined<T extends object>(fields: T): { readonly [K in keyof T]?: Exclude<T[K], undefined> } {
  const result: Record<string, unknown> = {}
  for (const name in fields) if (fields[name] !== undefined) result[name] = fields[name]
  return result as never
}
