// The heap of this process, for benchmarks of memory.

import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Heap in use after garbage collection, in bytes. */
export function heapInUse() {
  setFlagsFromString('--expose_gc')
  const collect = runInNewContext('gc')
  for (let i = 0; i < 3; i++) collect()
  const { heapUsed, external } = process.memoryUsage()
  return { heapUsed, external }
}
