/** The heartbeat thread: opens the same store or server again, as another proposer, and renews leases while the main event loop is blocked. */
import { parentPort, workerData } from 'node:worker_threads'
import { closePort } from '../at-exit.ts'
import { systemClock as clock } from '../clock.ts'
import { BackupRenewer } from '../holder/backup-renewer.ts'
import { LoopPulse, type WorkerMessage } from '../holder/worker-heartbeat.ts'
import { open } from './connect.ts'
import type { ThreadData } from './heartbeat-thread.ts'

const { url, apiKey, via, pulse, exited, margin, maxStall } = workerData as ThreadData
const port = parentPort!
// The process may exit before the store is open.
port.on('message', (message: WorkerMessage) => {
  if (message === 'exit') exit()
})
const lessor = await open(url, { apiKey, via })
const renewer = new BackupRenewer({ lessor, clock, pulse: new LoopPulse(pulse), margin, maxStall })

port.on('message', (message: WorkerMessage) => {
  if (message === 'exit') return
  if (message === 'close') void close()
  else if ('page' in message) renewer.addPage(message.page)
  else renewer.mindTerm(message.shortest)
})
port.postMessage('ready')

/** The process exits, and waits for this thread: Node would stop it anywhere, also inside SQLite (heartbeat-thread.ts). */
function exit(): void {
  const word = new Int32Array(exited)
  process.once('exit', () => {
    Atomics.store(word, 0, 1)
    Atomics.notify(word, 0)
  })
  process.exit()
}

async function close(): Promise<void> {
  renewer.close()
  await lessor[Symbol.asyncDispose]()
  closePort(port)
}
