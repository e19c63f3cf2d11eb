/**
 * The worker thread of a file store: SQLite blocks while it syncs, and the main loop must not.
 *
 * Each request is answered by one message, but for appends over the channel of an owner (append-channel.ts). A read that waits is answered when there is a record: at once after an append of this process,
 * and by polling after one of another process, often enough to see it within 50 ms.
 */
import { parentPort, workerData } from 'node:worker_threads'
import { systemClock as clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Appended, Position, Read } from '../../store.ts'
import { AppendListener } from './append-channel.ts'
import { type Engine, loadEngine } from './engine.ts'
import { ExitMutex, locked } from './exit-mutex.ts'
import type { WorkerAnswer, WorkerRequest, WorkerStart } from './file.ts'
import { FileLog } from './log.ts'

/** Poll intervals, in ms: while other processes append, and when the log has not changed for `IDLE_AFTER`. */
const [POLL_BUSY, POLL_IDLE] = [8, 20]
const IDLE_AFTER = 1_000
/** Smaller buffers are copied faster than transferred. */
const LARGE = 16_384

const port = parentPort!
const waiting = new Map<number, Position>()
let polling = false
let lastChange = clock.now()

process.removeAllListeners('warning') // Node prints to stderr that its SQLite is experimental
const loading = load(new ExitMutex(workerData as SharedArrayBuffer))
loading.catch(() => {}) // the first request reports it
let listener: AppendListener | undefined
/** Requests that are being carried out, and what follows from them. While there are any, the event loop must go on. */
let running = 0
/** True while the channel is served after the messages: since the last append by message, until a message or nothing has come. */
let serving = false
let willServe = false
let opening: Promise<FileLog>
let log: FileLog | undefined

port.once('message', ({ channel, ...options }: WorkerStart) => {
  listener = channel && new AppendListener(channel)
  opening = loading.then(engine => new FileLog({ ...options, engine }))
  opening.catch(() => {}) // the first request reports it
  port.on('message', receive)
})

function receive(request: WorkerRequest): void {
  const [id, call] = request
  listener?.messageReceived()
  if (call === 'cancel') waiting.delete(id)
  else if (call !== 'look') carryOut(request)
  serving ||= call === 'append' || call === 'look'
  serveSoon()
}

function carryOut(request: WorkerRequest): void {
  const [id] = request
  running++
  perform(request)
    .then(
      value => value !== LATER && answer(id, value),
      error => {
        waiting.delete(id)
        refuse(id, error)
      },
    )
    .finally(finished)
}

function finished(): void {
  running--
  serveSoon()
}

/** Serves the channel after the messages that have arrived. A read that waits needs the event loop, for polling. */
function serveSoon(): void {
  const channel = listener
  if (channel === undefined || !serving || willServe || running > 0 || waiting.size > 0) return
  willServe = true
  clock.soon(() => {
    willServe = false
    if (running === 0 && waiting.size === 0) serve(channel)
  })
}

/** Appends what comes over the channel, until a message or nothing comes. */
function serve(listener: AppendListener): void {
  while (log !== undefined && running === 0) {
    const request = listener.next()
    if (request === undefined) {
      serving = false
      return
    }
    const { call, record, after } = request
    let appended: Appended | undefined
    try {
      appended = log.appendNow(record, after)
    } catch (error) {
      listener.answer(undefined)
      refuse(call, error)
      continue
    }
    if (appended?.kind === 'appended' && appended.missed.length === 0) {
      if (!listener.answer(appended.position)) answer(call, appended)
      log.afterAppend(appended.position)
      continue
    }
    listener.answer(undefined)
    if (appended === undefined) carryOut([call, 'append', record, after])
    else answer(call, appended)
  }
}

const LATER = Symbol('answered when there is a record')

/** Not `async`: an append must begin in the same turn as its message. */
function perform(request: WorkerRequest): Promise<unknown> {
  if (!log) return start(request)
  switch (request[1]) {
    case 'append':
      return log.append(request[2], request[3]).finally(() => answerWaiting())
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
    case 'look':
      return Promise.resolve()
  }
}

async function load(mutex: ExitMutex): Promise<Engine> {
  mutex.lock()
  try {
    return locked(await loadEngine(), mutex)
  } finally {
    mutex.unlock()
  }
}

async function start(request: WorkerRequest): Promise<unknown> {
  log = await opening
  return perform(request)
}

async function wait(log: FileLog, id: number, after: Position): Promise<Read | typeof LATER> {
  waiting.set(id, after) // before the read: the wait may be cancelled meanwhile
  const read = await log.read(after)
  if (!waiting.has(id) || !isAnswer(read)) {
    poll(log)
    return LATER
  }
  waiting.delete(id)
  return read
}

/** Polls the file while a read waits. */
function poll(log: FileLog): void {
  if (polling || waiting.size === 0) return
  polling = true
  clock.after(clock.now() - lastChange > IDLE_AFTER ? POLL_IDLE : POLL_BUSY, () => {
    polling = false
    try {
      if (log.moved()) {
        lastChange = clock.now()
        answerWaiting()
      }
    } catch (error) {
      for (const id of waiting.keys()) refuse(id, error)
      waiting.clear()
    }
    poll(log)
  })
}

function answerWaiting(): void {
  for (const [id, after] of waiting) {
    log!.read(after).then(
      read => isAnswer(read) && waiting.delete(id) && answer(id, read),
      error => waiting.delete(id) && refuse(id, error),
    )
  }
}

function isAnswer(read: Read): boolean {
  return read.kind !== 'records' || read.records.length > 0
}

async function keep(log: FileLog, id: number, at: Position, chunks: number): Promise<'kept' | 'older'> {
  const kept = await log.keepSnapshot(id, at, chunks)
  running++
  log
    .tidy()
    .catch(() => {}) // the next snapshot tries again
    .finally(finished)
  return kept
}

async function close(log: FileLog): Promise<void> {
  waiting.clear()
  await log.close()
  clock.soon(() => port.close()) // after the answer was sent
}

function answer(id: number, value: unknown): void {
  port.postMessage([id, true, value] satisfies WorkerAnswer, transferable(value))
}

function refuse(id: number, error: unknown): void {
  const { code, message, reason, facts } = error instanceof LeaseError ? error : new LeaseError('UNKNOWN', String(error))
  const cause = error instanceof Error && error.cause !== undefined ? String(error.cause) : undefined
  port.postMessage([id, false, { code, message, reason, facts, cause }] satisfies WorkerAnswer)
}

/** Buffers to transfer instead of copy. */
function transferable(value: unknown): ArrayBuffer[] {
  if (value instanceof Uint8Array) return [value.buffer as ArrayBuffer]
  const { records, missed = records } = (value ?? {}) as { records?: { bytes: Uint8Array }[]; missed?: { bytes: Uint8Array }[] }
  return (missed ?? []).filter(({ bytes }) => bytes.length >= LARGE).map(({ bytes }) => bytes.buffer as ArrayBuffer)
}
