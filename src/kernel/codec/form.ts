/**
 * Whether a command from outside has the form of one: texts where texts belong, whole numbers where numbers belong. Only such a command can
 * be written to a log and read back the same; whether it makes sense is decided when it is applied.
 */
import {
  type Command,
  MAX_ENTRIES,
  MAX_LABELS,
  MAX_RESOURCES,
  MAX_STOPPED,
  type Move,
  type Operation,
  type Release,
  type Run,
  VERBS,
  type Want,
} from '../command.ts'
import { fits, NAME_BYTES } from '../name.ts'

type Check = (value: unknown) => string | undefined

/** Bytes of UTF-8. */
const MAX_TEXT = 65_536

const number: Check = value => {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return undefined
  return `must be a whole number of at most 2^53 - 1, not ${describe(value)}`
}

/** Where a log writes 0 for left out: whoever reads it there must not find another command than its proposer had. */
const positive: Check = value => (value === 0 ? 'must be above 0: leave it out instead' : number(value))

const signed: Check = value => {
  if (Number.isSafeInteger(value) && Math.abs(value as number) < 2 ** 52) return undefined
  return `must be a whole number, not ${describe(value)}`
}

const text: Check = value => {
  if (typeof value !== 'string') return `must be text, not ${describe(value)}`
  return fits(value, MAX_TEXT) ? undefined : 'is too long, or not Unicode text'
}

/** As `positive`: a log writes an empty text for one left out. */
const someText: Check = value => (value === '' ? 'is empty: leave it out instead' : text(value))

const yesNo: Check = value => (typeof value === 'boolean' ? undefined : `must be true or false, not ${describe(value)}`)

function describe(value: unknown): string {
  return typeof value === 'object' ? 'an object' : typeof value === 'string' ? `"${value.slice(0, 32)}"` : String(value)
}

/** What no rule could accept need not be written to a log first. */
function list(each: Check, most = 100_000): Check {
  return value => {
    if (!Array.isArray(value)) return `must be a list, not ${describe(value)}`
    if (value.length > most) return `has ${value.length} items, and at most ${most} are allowed`
    for (const item of value) {
      const wrong = each(item)
      if (wrong !== undefined) return `has an item that ${wrong}`
    }
    return undefined
  }
}

function choice(names: readonly string[]): Check {
  return value =>
    typeof value === 'string' && names.includes(value) ? undefined : `must be one of ${names.join(', ')}, not ${describe(value)}`
}

/** Closed: a field it does not know is a mistake, not a wish. A name that ends in `?` may be left out. */
function fields(spec: Readonly<Record<string, Check>>): Check {
  // Every command passes here: looked up in an object without a prototype, which is quicker than a Map and as safe.
  const checks: Record<string, Check | undefined> = Object.create(null)
  for (const [name, check] of Object.entries(spec)) checks[name.replace('?', '')] = check
  const needed = Object.keys(spec).filter(name => !name.endsWith('?'))
  return value => {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return `must be an object, not ${describe(value)}`
    const object = value as Record<string, unknown>
    for (const name of needed) if (object[name] === undefined) return `${name} is missing`
    // Makes no list of them, as Object.keys would; what an object inherits is refused like any other field.
    for (const name in object) {
      const check = checks[name]
      if (check === undefined) return `has a field ${name.slice(0, 64)}, which is not known; there are ${Object.keys(checks).join(', ')}`
      const field = object[name]
      const wrong = field === undefined ? undefined : check(field)
      if (wrong !== undefined) return `${name} ${wrong}`
    }
    return undefined
  }
}

const pair: Check = value => (Array.isArray(value) && value.length === 2 ? (text(value[0]) ?? text(value[1])) : 'must be a pair of texts')

const target: Check = value => {
  const wrong = fields({ 'lease?': number, 'holder?': text, 'prefix?': text })(value)
  if (wrong !== undefined) return wrong
  const named = Object.values(value as object)
  return named.length === 1 && named[0] !== undefined ? undefined : 'must name one of lease, holder and prefix'
}

const kind: Check = () => undefined

const named = fields({ resource: text, 'units?': positive, 'shared?': yesNo })

/** A log has room for one of both: what its proposer would refuse, everyone else would read as one unit and grant. */
const want: Check = value => {
  const wrong = named(value)
  if (wrong !== undefined) return wrong
  const { resource, units = 1, shared } = value as Want
  return shared === true && units !== 1 ? `is a shared grant of ${resource}, which takes no units: leave units out` : undefined
}

const wants = list(want, MAX_RESOURCES)

/** Everyone who may read the log reads it, and so does everyone who is told where the leases went. */
const place: Check = value => {
  const wrong = someText(value)
  if (wrong !== undefined) return wrong
  const [, user = ''] = /^[a-z][a-z0-9+.-]*:\/\/([^/?#]*)@/i.exec(value as string) ?? []
  const secret = user.includes(':') || /[?&](?:password|passwd|pwd|sslpassword)=[^&]/i.test(value as string)
  return secret ? 'has a password in it, which others would read: leave it out' : undefined
}

const moving = fields({ kind, 'to?': place, 'stay?': yesNo, 'since?': positive, 'into?': choice(['begin', 'end']) })

/** One step at a time: a log has room for one of them. */
const move: Check = value => {
  const { stay, into } = value as Move
  return moving(value) ?? (stay === true && into !== undefined ? 'into is for the log they go to, stay for the one they leave' : undefined)
}

const running = fields({ kind, owned: yesNo, 'nonce?': positive, 'secret?': someText })

const run: Check = value => {
  const { nonce, secret } = value as Run
  return running(value) ?? (nonce === undefined && secret !== undefined ? 'secret comes with a nonce' : undefined)
}

const releasing = fields({ kind, lease: number, 'resource?': someText, 'stopped?': list(number, MAX_STOPPED) })

/** Who gives back one thing goes on living, with all that hangs on it. */
const release: Check = value => {
  const { resource, stopped } = value as Release
  return (
    releasing(value) ?? (resource !== undefined && stopped !== undefined ? 'stopped is for a whole lease, not for one resource' : undefined)
  )
}

const FORMS: Readonly<Record<Command['kind'], Check>> = {
  acquire: fields({
    kind,
    holder: text,
    'incarnation?': positive,
    ttl: number,
    wants,
    'any?': positive,
    'wait?': yesNo,
    'priority?': signed,
    'entries?': list(fields({ key: text, value: text, 'generation?': positive }), MAX_ENTRIES),
    'parent?': positive,
    'labels?': list(pair, MAX_LABELS),
    'holding?': list(number, MAX_RESOURCES),
    'grace?': number,
    'maxLife?': positive,
    'steal?': choice(['after', 'force']),
    'recall?': yesNo,
  }),
  widen: fields({ kind, lease: number, wants }),
  claim: fields({ kind, lease: number, 'incarnation?': positive }),
  renew: fields({ kind, leases: list(number), 'waiting?': yesNo }),
  release,
  due: fields({ kind, timer: number, epoch: number }),
  aged: fields({ kind, marks: list(fields({ timer: number, epoch: number, ms: number })) }),
  'aged-together': fields({ kind, run: number, ms: number }),
  run,
  put: fields({ kind, lease: number, key: text, value: text, 'generation?': positive }),
  delete: fields({ kind, key: text, 'lease?': positive }),
  revoke: fields({ kind, target, 'force?': yesNo, 'by?': text }),
  transfer: fields({ kind, lease: number, to: text, 'incarnation?': positive, 'stopped?': yesNo }),
  break: fields({ kind, resource: text, 'after?': number, 'by?': text }),
  recall: fields({ kind, resource: text, 'by?': text }),
  policy: fields({
    kind,
    prefix: text,
    'rules?': fields({
      'ttlMin?': number,
      'ttlMax?': number,
      'capacity?': number,
      'lockDelay?': number,
      'grace?': number,
      'maxLife?': number,
      'maxHold?': number,
      'quota?': number,
      'waiters?': number,
      'queue?': choice(['fifo', 'fit']),
      'aging?': number,
      'leases?': number,
      'leasesPerKey?': number,
      'flapPenalty?': number,
      'flapHalfLife?': number,
      'flapSuppress?': number,
      'flapReuse?': number,
      'preserveShare?': number,
      'preserveLeast?': number,
      'preserveMost?': number,
      'sweepShare?': number,
    }),
  }),
  key: fields({ kind, name: text, hash: text, allow: list(fields({ verb: choice(VERBS), prefix: text })) }),
  unkey: fields({ kind, id: number }),
  fence: fields({ kind, resource: text, token: number }),
  tick: fields({ kind, n: number, elapsed: number }),
  upgrade: fields({ kind, rules: number }),
  move,
  generation: fields({ kind, lease: number, token: number, revision: number, quiet: number, 'key?': positive }),
}

/** What is wrong with its form, or undefined. */
export function malformed(command: Command): string | undefined {
  if (typeof command !== 'object' || command === null || !Object.hasOwn(FORMS, String(command.kind))) return 'there is no such command'
  const wrong = FORMS[command.kind](command)
  return wrong === undefined ? undefined : `${command.kind}: ${wrong}`
}

/** As `malformed`, for who asks: what cannot be encoded would spoil the entry for all who share it. */
export function malformedAsker(key: number, op: Operation | undefined): string | undefined {
  const number = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0
  if (!number(key)) return `${String(key)} is not the number of a key`
  if (op === undefined) return undefined
  const { session, seq, acked, asked = 0 } = op
  if (typeof session !== 'string' || !fits(session, NAME_BYTES)) return `a session's name is text of at most ${NAME_BYTES} bytes`
  if (!number(asked)) return `what an operation asks is said by a whole number, not ${String(asked)}`
  return number(seq) && number(acked) ? undefined : `an operation is numbered by whole numbers, not ${String(seq)} after ${String(acked)}`
}
