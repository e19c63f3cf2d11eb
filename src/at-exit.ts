/** Calls functions when this process, or this worker thread, exits, and lets a thread exit. One listener serves all: Node warns of more than ten. */
import type { MessagePort } from 'node:worker_threads'

const calls = new Set<() => void>()
let listening = false

/** Calls `call` at exit, unless the returned function was called before. Nothing asynchronous runs any more by then. */
export function atExit(call: () => void): () => void {
  calls.add(call)
  if (!listening) process.once('exit', () => calls.forEach(each => void each()))
  listening = true
  return () => void calls.delete(call)
}

/** Closes the port to the main thread, so that this thread can exit. In Deno that port cannot be closed: the thread closes itself. */
export function closePort(port: MessagePort): void {
  if (typeof port.close === 'function') port.close()
  else (globalThis as { close?: () => void }).close?.()
}
