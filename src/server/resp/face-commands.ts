/** The commands of faces on RESP: a face gets the words of a command and a lessor of its caller, and gives back an answer, which is written here. */
import { LeaseError } from '../../errors.ts'
import { type RespFaceCommand, RespFailure, type RespReply, SAME_NAMES } from '../../face/face.ts'
import type { RespWriter } from '../../wire/resp/writer.ts'
import { callerLessor } from '../caller-lessor.ts'
import { text } from './command.ts'
import type { SessionCommand } from './session.ts'

/** Commands of Redis that lock clients send, and that are answered with a face only. */
const WITH_FACE: ReadonlySet<string> = new Set(
  'SET SETNX GET DEL UNLINK DELEX DELIFEQ EXPIRE PEXPIRE TTL PTTL EXISTS EVAL EVALSHA SCRIPT BLPOP MULTI SUBSCRIBE PUBLISH'.split(' '),
)

/** Returns what a client of Redis is told that connects to a server without the face. */
export function unknownCommand(name: string): string {
  const said = `unknown command '${name}'`
  if (!WITH_FACE.has(name.toUpperCase())) return said
  return `${said}: this is Leasehold. Use LEASE.ACQUIRE, or start the server with --face redis for clients of Redis locks`
}

export function faceCommand({ run, keys, waits, ...command }: RespFaceCommand): SessionCommand {
  return {
    ...command,
    run(session) {
      const { args, host, caller } = session
      const { guarded, clock, faceNames: names = SAME_NAMES } = host.context
      const words: string[] = []
      for (let i = 1; i < args.count; i++) words.push(text(session, i, 'an argument'))
      const asked = {
        ...{ lessor: callerLessor(guarded, caller), key: caller.key, holder: session.holder, clock, names, signal: session.queue },
        nextTurn: () => guarded.nextTurn(caller),
      }
      const work = () => answerOf(() => run(words, asked))
      const reply = KeyOrder.of(session).begin(keys?.(words) ?? [], work)
      if (waits) session.replyBlocking(reply, writeReply)
      else session.replyLater(reply, writeReply)
    },
  }
}

/** The commands of one connection that are under way, by the keys that they name: the next command that names one of these keys waits for them. */
class KeyOrder {
  static readonly #bySession = new WeakMap<object, KeyOrder>()
  readonly #last = new Map<string, Promise<unknown>>()

  static of(session: object): KeyOrder {
    const known = KeyOrder.#bySession.get(session)
    if (known !== undefined) return known
    const order = new KeyOrder()
    KeyOrder.#bySession.set(session, order)
    return order
  }

  /** Begins the work at once, or as soon as the commands before it that name one of its keys are done, even if they failed. */
  begin<T>(keys: readonly string[], work: () => Promise<T>): Promise<T> {
    const earlier = keys.flatMap(key => this.#last.get(key) ?? [])
    const done = earlier.length === 0 ? work() : Promise.allSettled(earlier).then(work)
    for (const key of keys) this.#last.set(key, done)
    const forget = () => {
      for (const key of keys) if (this.#last.get(key) === done) this.#last.delete(key)
    }
    if (keys.length > 0) done.then(forget, forget)
    return done
  }
}

/** A failure of the face, or one that Redis has a code for, is an answer. */
async function answerOf(run: () => Promise<RespReply>): Promise<RespReply> {
  try {
    const reply = await run()
    return typeof reply === 'object' && reply !== null && 'error' in reply ? failed(reply.error) : reply
  } catch (error) {
    if (error instanceof RespFailure) return failed(error)
    const code = error instanceof LeaseError ? CODES[error.code] : undefined
    if (code === undefined) throw error
    return failed(new RespFailure(code, (error as LeaseError).message))
  }
}

/** The codes that are counted. A script may name any other, and metrics must not have labels without bound. */
const COUNTED: ReadonlySet<string> = new Set(['ERR', 'NOSCRIPT', 'NOAUTH', 'NOPERM'])

/** In the form of a refusal, which is counted by its code. */
function failed(error: RespFailure): RespReply {
  const counted = { error, kind: 'refused', code: COUNTED.has(error.code) ? error.code : 'ERR' }
  return counted
}

const CODES: Readonly<Record<string, string>> = { UNAUTHENTICATED: 'NOAUTH', FORBIDDEN: 'NOPERM', INVALID: 'ERR' }

function writeReply(to: RespWriter, reply: RespReply): void {
  if (reply === null) to.null()
  else if (typeof reply === 'string') to.text(reply)
  else if (typeof reply === 'number') to.integer(reply)
  else if ('status' in reply) to.simple(reply.status)
  else if ('error' in reply) to.error(reply.error.code, reply.error.message)
  else {
    to.array(reply.length)
    for (const item of reply) writeReply(to, item)
  }
}
