/** The commands of faces on RESP: a face gets the words of a command and a lessor of its caller, and gives back an answer, which is written here. */
import { LeaseError } from '../../errors.ts'
import { type RespFaceCommand, RespFailure, type RespReply } from '../../face/face.ts'
import type { RespWriter } from '../../wire/resp/writer.ts'
import { callerLessor } from '../caller-lessor.ts'
import { text } from './command.ts'
import type { SessionCommand } from './session.ts'

/** Commands of Redis that lock clients send, and that are answered with a face only. */
const WITH_FACE: ReadonlySet<string> = new Set(
  'SET SETNX GET DEL UNLINK DELEX DELIFEQ EXPIRE PEXPIRE TTL PTTL EXISTS EVAL EVALSHA SCRIPT BLPOP MULTI SUBSCRIBE PUBLISH'.split(' '),
)

/** What a client of Redis is told that connects to a server without the face. */
export function unknownCommand(name: string): string {
  const said = `unknown command '${name}'`
  if (!WITH_FACE.has(name.toUpperCase())) return said
  return `${said}: this is Leasehold. Use LEASE.ACQUIRE, or start the server with --face redis for clients of Redis locks`
}

export function faceCommand({ run, ...command }: RespFaceCommand): SessionCommand {
  return {
    ...command,
    run(session) {
      const { args, host, caller } = session
      const { guarded, clock } = host.context
      const words = Array.from({ length: args.count - 1 }, (_, i) => text(session, i + 1, 'an argument'))
      const asked = { lessor: callerLessor(guarded, caller), holder: session.holder, clock, signal: session.queue }
      session.replyBlocking(
        answerOf(() => run(words, asked)),
        writeReply,
      )
    },
  }
}

/** A failure of the face, or one that Redis has a code for, is an answer. */
async function answerOf(run: () => Promise<RespReply>): Promise<RespReply> {
  try {
    return await run()
  } catch (error) {
    if (error instanceof RespFailure) return { error }
    const code = error instanceof LeaseError ? CODES[error.code] : undefined
    if (code === undefined) throw error
    return { error: new RespFailure(code, (error as LeaseError).message) }
  }
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
