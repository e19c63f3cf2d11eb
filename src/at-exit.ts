/** Calls functions when this process, or this worker thread, exits. One listener serves all: Node warns of more than ten. */

const calls = new Set<() => void>()
let listening = false

/** Calls `call` at exit, unless the returned function was called before. Nothing asynchronous runs any more by then. */
export function atExit(call: () => void): () => void {
  calls.add(call)
  if (!listening) process.once('exit', () => calls.forEach(each => void each()))
  listening = true
  return () => void calls.delete(call)
}
