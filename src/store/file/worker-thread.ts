/**
 * Starts the worker thread of a file store. A thread takes about as long to start as a program to load, so a program that is going to open a file can start
 * one ahead.
 */
import { Worker } from 'node:worker_threads'
import { atExit } from '../../at-exit.ts'
import { ExitMutex } from './exit-mutex.ts'

let ahead: Worker | undefined
const mutexes = new WeakMap<Worker, ExitMutex>()

/** Starts the thread that the next store will use. It does not keep the process alive. */
export function startThreadAhead(): void {
  if (ahead !== undefined) return
  const worker = startThread()
  const forget = () => {
    if (ahead === worker) ahead = undefined
  }
  // The store that needs a thread starts its own then, and reports what is wrong.
  worker.once('error', forget)
  worker.once('exit', forget)
  ahead = worker
}

/** A thread that waits for its first message. */
export function takeThread(): Worker {
  const worker = ahead ?? startThread()
  ahead = undefined
  return worker
}

/** Ends a thread that cannot end by itself. Waits until it is outside SQLite: ending it inside would abort the whole process. */
export async function endThread(worker: Worker): Promise<void> {
  mutexes.get(worker)?.lockForever()
  await worker.terminate()
}

function startThread(): Worker {
  const mutex = new ExitMutex()
  // The thread does not inherit how this process was started (`--input-type`, a loader).
  const worker = new Worker(workerFile(), { workerData: mutex.memory, execArgv: [] })
  mutexes.set(worker, mutex)
  worker.once(
    'exit',
    atExit(() => mutex.lockForever()),
  )
  worker.unref()
  return worker
}

/** The compiled file beside this one. Node 20 does not run TypeScript on a thread, so from source it is the last build. */
function workerFile(): URL {
  return new URL(import.meta.url.endsWith('.ts') ? '../../../dist/store/file/worker.js' : './worker.js', import.meta.url)
}
