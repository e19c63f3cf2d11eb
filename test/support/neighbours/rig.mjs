// A built server without sockets over a large state. What it is asked is counted in steps (counted.mjs), and time is counted steps too, as far as the turns of
// callers are concerned: so slices are as long on every machine.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { FACE_NAMES } from '../../../dist/face/face.js'
import { loadFaces } from '../../../dist/face/faces.js'
import { hookRoute } from '../../../dist/guard/hook-route.js'
import { propose } from '../../../dist/lessor/propose.js'
import { mcpRoute } from '../../../dist/mcp/http-route.js'
import { Replica } from '../../../dist/replica/replica.js'
import { CallerTurns } from '../../../dist/server/caller-turns.js'
import { setFaceRules } from '../../../dist/server/face-rules.js'
import { GuardedLessor } from '../../../dist/server/guarded-lessor.js'
import { HttpHandler } from '../../../dist/server/http/handler.js'
import { hashSecret } from '../../../dist/server/key-secret.js'
import { DEFAULT_LIMITS } from '../../../dist/server/limits.js'
import { RespListener } from '../../../dist/server/resp/resp-listener.js'
import { MemoryLog, MemoryStore } from '../../../dist/store/memory.js'
import { ManualClock } from '../../../dist/testing/manual-clock.js'
import { fillState } from './large-state.mjs'
import { operationsFor } from './operations.mjs'

/** Steps in a millisecond of the clock: about as many as this program takes in one. */
export const STEPS_PER_MS = 20_000
export const KEYS = ['rich', 'poor', 'other', 'neighbour']
const secretOf = name => `secret-of-${name}`
/** Turns of the event loop without an answer after which the client of an operation that waits leaves. */
const QUIET = 12
/** The status of a client that left before it had an answer. */
const LEFT = 299
const SILENT = { debug() {}, info() {}, warn() {}, error() {} }
const OK = '+OK\r\n'

class StepClock extends ManualClock {
  now() {
    return super.now() + globalThis.leaseholdSteps.count / STEPS_PER_MS
  }
}

export class NeighbourRig {
  #handler

  constructor(lessor, context, ids) {
    this.lessor = lessor
    this.context = context
    this.routes = [mcpRoute(), hookRoute()]
    this.#handler = new HttpHandler(context, { routes: this.routes })
    this.resp = new RespListener(context)
    this.ids = ids
  }

  static async open(sizes) {
    const clock = new ManualClock()
    const lessor = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
    const faces = await loadFaces(FACE_NAMES)
    await setFaceRules(lessor, faces)
    for (const name of KEYS) {
      const allow = name === 'poor' ? [{ verb: 'acquire', prefix: 'nothing' }] : [{ verb: 'admin', prefix: '' }]
      await propose(lessor, { kind: 'key', name, hash: hashSecret(secretOf(name)), allow })
    }
    const ids = await fillState((asked, key = 0) => propose(lessor, asked, { key }), sizes, 1, 3)
    const granted = await propose(
      lessor,
      { kind: 'acquire', holder: 'neighbour', ttl: 60_000, wants: [{ resource: 'neighbour' }] },
      { key: 4 },
    )
    ids.neighbour = granted.lease
    const guarded = await GuardedLessor.open({ lessor, clock, turns: new CallerTurns(new StepClock()) })
    const closing = new AbortController().signal
    const context = { guarded, clock, limits: DEFAULT_LIMITS, log: SILENT, figures: () => ({}), closing, connections: () => 1, faces }
    return new NeighbourRig(lessor, context, ids)
  }

  operations(copy) {
    return operationsFor(this.ids, copy)
  }

  /** Asks as a client with this key would, and resolves when everything was answered, or when the client has left. `answered` is called with the first piece. */
  ask(asked, key, answered = () => {}) {
    return asked.words === undefined ? this.#http(asked, key, answered) : this.#command(asked.words, key, answered)
  }

  async #http({ method, target, body, headers: more = {}, stream = false }, key, answered) {
    const text = body === undefined ? undefined : JSON.stringify(body)
    const headers = {
      host: 'localhost',
      authorization: `Bearer ${secretOf(key)}`,
      ...(text !== undefined && { 'content-type': 'application/json' }),
      ...more,
    }
    const left = new AbortController()
    const request = {
      ...{ method, target, header: name => headers[name], hasBody: text !== undefined },
      body: async () => text,
      bytes: async () => Buffer.from(text),
      gone: () => left.signal,
      connection: {},
    }
    let pieces = 0
    let over = false
    const take = async () => {
      const { status: answeredStatus, body: given } = await this.#handler.handle(request)
      const status = left.signal.aborted ? LEFT : answeredStatus
      pieces++
      answered()
      let first = typeof given === 'string' ? given : ''
      if (typeof given === 'object' && !(given instanceof Uint8Array))
        for await (const piece of given) {
          pieces++
          if (first === '') first = String(piece)
          // A socket takes a piece, and asks for the next in a later turn.
          await nextTurn()
          if (left.signal.aborted) break
        }
      return { status, text: first }
    }
    const ended = take()
      .catch(error => ({ status: left.signal.aborted ? LEFT : 500, text: String(error?.stack ?? error) }))
      .finally(() => (over = true))
    for (let quiet = 0, seen = 0; !over && quiet < QUIET; quiet++) {
      await nextTurn()
      // One that computes is not quiet.
      if (pieces !== seen || (!stream && this.isBusy)) quiet = 0
      seen = pieces
    }
    left.abort(new Error('the client left'))
    return ended
  }

  /** Steps were taken in the last turn. Set by the program that counts them. */
  isBusy = false

  async #command(words, key, answered) {
    let replies = ''
    const session = this.resp.open('1.2.3.4:5', end => ({
      write: written => {
        if (replies.length >= OK.length || replies + Buffer.from(written).toString('latin1', 0, 9) !== OK) answered()
        replies += Buffer.from(written).toString('latin1', 0, 200)
      },
      ...{ backlog: 0, pause() {}, resume() {}, end: () => end.closed(), destroy: () => end.closed() },
    }))
    session.data(respCommand(['AUTH', secretOf(key)]))
    const bytes = respCommand(words)
    for (let at = 0; at < bytes.length; at += 65_536) {
      session.data(bytes.subarray(at, at + 65_536))
      await nextTurn()
    }
    for (let quiet = 0; quiet < QUIET && replies.length <= OK.length; quiet++) {
      await nextTurn()
      if (this.isBusy) quiet = 0
    }
    for (let quiet = 0, seen = 0; quiet < 2; quiet++) {
      await nextTurn()
      if (seen !== replies.length || this.isBusy) quiet = 0
      seen = replies.length
    }
    session.destroy()
    await nextTurn()
    const text = replies.slice(OK.length)
    return { status: text.startsWith('-') ? 400 : 200, text }
  }

  async close() {
    await this.context.guarded[Symbol.asyncDispose]()
    await this.lessor[Symbol.asyncDispose]()
  }
}

/** A RESP command. */
function respCommand(words) {
  const parts = [`*${words.length}\r\n`]
  for (const word of words) parts.push(`$${Buffer.byteLength(String(word))}\r\n${word}\r\n`)
  return Buffer.from(parts.join(''))
}
