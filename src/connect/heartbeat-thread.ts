/** Starts the thread that renews leases while the main event loop is blocked (`heartbeat: 'worker'`). */
import { existsSync } from 'node:fs'
import { atExit } from '../at-exit.ts'
import { systemClock } from '../clock.ts'
import { milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import { marginOf } from '../holder/validity.ts'
import { LoopPulse, WorkerHeartbeat, type WorkerMessage } from '../holder/worker-heartbeat.ts'
import type { LeasesOptions } from '../leases.ts'

/**
 * An exiting process waits this long for the thread to exit, in ms. The thread exits between two calls of SQLite. A thread that Node stops inside one returns
 * into a JavaScript engine that is gone, and the SQLite from npm aborts the process.
 */
const EXIT_TIMEOUT = 10_000

export interface ThreadData {
  readonly url: string
  readonly apiKey: string | undefined
  readonly via: 'server' | undefined
  readonly pulse: SharedArrayBuffer
  /** The thread stores a 1 here when it exits. */
  readonly exited: SharedArrayBuffer
  readonly margin: number
  readonly maxStall: number
}

/** Resolves when the thread has opened `url`. */
export async function startWorkerHeartbeat(
  url: string,
  options: LeasesOptions & { readonly apiKey?: string | undefined; readonly via?: 'server' | undefined },
): Promise<WorkerHeartbeat> {
  const { clock = systemClock, apiKey, via } = options
  if (/^memory:/i.test(url))
    throw new LeaseError('UNSUPPORTED', `heartbeat: 'worker' cannot renew leases in ${url}: threads do not share that memory`)
  if (clock !== systemClock)
    throw new LeaseError('UNSUPPORTED', "heartbeat: 'worker' uses the machine's own clock; leave out the option clock")
  const maxStall = milliseconds(options.maxStall ?? '10s', 'maxStall')
  const pulse = new LoopPulse()
  const exited = new Int32Array(new SharedArrayBuffer(4))
  const data: ThreadData = { url, apiKey, via, pulse: pulse.memory, exited: exited.buffer, margin: marginOf(options), maxStall }
  // Loaded here: every start of a program would pay for it, and few use it.
  const { Worker } = process.getBuiltinModule('node:worker_threads')
  const worker = new Worker(workerFile(), { workerData: data, execArgv: [], name: 'leasehold heartbeat' })
  worker.once(
    'exit',
    atExit(() => {
      worker.postMessage('exit' satisfies WorkerMessage)
      Atomics.wait(exited, 0, 0, EXIT_TIMEOUT)
    }),
  )
  // Not `once`: it also rejects on 'error'. An unhandled rejection would end the process, which must continue without the thread.
  let failure: Error | undefined
  worker.on('error', error => (failure = error))
  const ended = new Promise<Error>(resolve => worker.once('exit', code => resolve(failure ?? new Error(`it exited with code ${code}`))))
  const ready = new Promise<undefined>(resolve => worker.once('message', () => resolve(undefined)))
  const cause = await Promise.race([ready, ended])
  if (cause !== undefined)
    throw new LeaseError('UNAVAILABLE', `the thread for the heartbeat could not open ${url}: ${cause.message}`, { cause })
  let closing = false
  worker.unref()
  void ended.then(({ message }) => {
    if (!closing) process.emitWarning(`the thread for the heartbeat failed; only this loop renews now: ${message}`, 'LeaseholdWarning')
  })
  return new WorkerHeartbeat(
    clock,
    {
      post: message => worker.postMessage(message),
      async [Symbol.asyncDispose]() {
        closing = true
        worker.ref()
        worker.postMessage('close')
        await ended
      },
    },
    pulse,
    maxStall,
  )
}

/** The address of this module. Undefined where a bundler made CommonJS of it. */
const here = import.meta.url as string | undefined

/** If this file runs from source, as in tests, the thread runs the built file. */
function workerFile(): URL {
  const file =
    here === undefined
      ? undefined
      : new URL(here.endsWith('.ts') ? '../../dist/connect/heartbeat-worker.js' : './heartbeat-worker.js', here)
  if (file !== undefined && existsSync(file)) return file
  throw new LeaseError(
    'UNSUPPORTED',
    "heartbeat: 'worker' starts a thread from a file of the package, which is not in a bundle: declare leasehold as external in your bundler, or leave out heartbeat",
  )
}
