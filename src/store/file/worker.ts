/**
 * The thread a file store does its waiting on: SQLite blocks while it syncs, and the main loop must not.
 *
 * A request is answered by one message. A read that waits is answered when there is something to read: our own appends tell us at once,
 * those of other processes are looked for often enough to be seen within 50 ms.
 */
import { parentPort, workerData } from 'node:worker_threads'
import { systemClock as clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Position, Read } from '../../store.ts'
import { type Engine, loadEngine } from './engine.ts'
import { ExitMutex, locked } from './exit-mutex.ts'
import type { WorkerAnswer, WorkerRequest } from './file.ts'
import { FileLog, type FileLogOptions } from './log.ts'

/** Between two looks, in ms: while others are busy, and when nothing has come for a second. */
const [OFTEN, SELDOM] = [8, 20]
const QUIET = 1_000
/** Smaller ones are copied sooner than handed over. */
const LARGE = 16_384

const port = parentPort!
const waiting = new Map<number, Position>()
let looking = false
let lastMoved = clock.now()

process.removeAllListeners('warning') // Node calls its SQLite experimental, on the standard error of whoever uses us
const { memory, ...options } = workerData as Omit<FileLogOptions, 'engine'> & { readonly memory: SharedArrayBuffer }
const opening = load(new ExitMutex(memory)).then(engine => new FileLog({ ...options, engine }))
opening.catch(() => {}) // told to whoever asks first
let log: FileLog | undefined

port.on('message', (request: WorkerRequest) => {
  const [id, call] = request
  if (call === 'cancel') waiting.delete(id)
  else
    perform(request).then(
      value => value !== LATER && answer(id, value),
      error => {
        waiting.delete(id)
        refuse(id, error)
      },
    )
})

const LATER = Symbol('answered when there is something')

/** Not `async` where it matters: an append is begun in the turn its message came. */
function perform(request: WorkerRequest): Promise<unknown> {
  if (!log) return start(request)
  switch (request[1]) {
    case 'append':
      return log.append(request[2], request[3]).finally(() => lookAgain())
    case 'read':
      return log.read(request[2])
    case 'wait':
      return wait(log, request[0], request[2])
    case 'beginSnapshot':
      return log.beginSnapshot(request[2])
    case 'putChunk':
      return log.putChunk(request[2], request[3], request[4])
    case 'keepSnapshot':
      return keep(log, request[2], request[3], request[4])
    case 'dropSnapshot':
      return log.dropSnapshot(request[2])
    case 'newest':
      return log.newest()
    case 'chunk':
      return log.chunk(request[2], request[3])
    case 'announce':
      return log.announce(request[2])
    case 'open':
      return log.open()
    case 'close':
      return close(log)
    case 'cancel':
      return Promise.resolve()
  }
}

async function load(gate: ExitMutex): Promise<Engine> {
  gate.enter()
  try {
    return locked(await loadEngine(), gate)
  } finally {
    gate.leave()
  }
}

async function start(request: WorkerRequest): Promise<unknown> {
  log = await opening
  return perform(request)
}

async function wait(log: FileLog, id: number, after: Position): Promise<Read | typeof LATER> {
  waiting.set(id, after) // before we look: it may be called off meanwhile
  const read = await log.read(after)
  if (!waiting.has(id) || !isSomething(read)) {
    look(log)
    return LATER
  }
  waiting.delete(id)
  return read
}

/** Looks for news until nobody waits. */
function look(log: FileLog): void {
  if (looking || waiting.size === 0) return
  looking = true
  clock.after(clock.now() - lastMoved > QUIET ? SELDOM : OFTEN, () => {
    looking = false
    try {
      if (log.moved()) {
        lastMoved = clock.now()
        lookAgain()
      }
    } catch (error) {
      for (const id of waiting.keys()) refuse(id, error)
      waiting.clear()
    }
    look(log)
  })
}

function lookAgain(): void {
  for (const [id, after] of waiting) {
    log!.read(after).then(
      read => isSomething(read) && waiting.delete(id) && answer(id, read),
      error => waiting.delete(id) && refuse(id, error),
    )
  }
}

function isSomething(read: Read): boolean {
  return read.kind !== 'records' || read.records.length > 0
}

async function keep(log: FileLog, id: number, at: Position, chunks: number): Promise<'kept' | 'older'> {
  const kept = await log.keepSnapshot(id, at, chunks)
  log.tidy().catch(() => {}) // the next one tries again
  return kept
}

async function close(log: FileLog): Promise<void> {
  waiting.clear()
  await log.close()
  clock.soon(() => port.close()) // after the answer has left
}

function answer(id: number, value: unknown): void {
  port.postMessage([id, true, value] satisfies WorkerAnswer, large(value))
}

function refuse(id: number, error: unknown): void {
  const { code, message, facts } = error instanceof LeaseError ? error : new LeaseError('UNKNOWN', String(error))
  const cause = error instanceof Error && error.cause !== undefined ? String(error.cause) : undefined
  port.postMessage([id, false, { code, message, facts, cause }] satisfies WorkerAnswer)
}

/** What is handed over instead of copied. */
function large(value: unknown): ArrayBuffer[] {
  if (value instanceof Uint8Array) return [value.buffer as ArrayBuffer]
  const { records, missed = records } = (value ?? {}) as { records?: { bytes: Uint8Array }[]; missed?: { bytes: Uint8Array }[] }
  return (missed ?? []).filter(({ bytes }) => bytes.length >= LARGE).map(({ bytes }) => bytes.buffer as ArrayBuffer)
}
