/** The heartbeat thread: opens the same store or server again, as another proposer, and renews leases while the main event loop is blocked. */
import { parentPort, workerData } from 'node:worker_threads'
import { systemClock as clock } from '../clock.ts'
import { BackupRenewer } from '../holder/backup-renewer.ts'
import { LoopPulse, type WorkerMessage } from '../holder/worker-heartbeat.ts'
import { open } from './connect.ts'
import type { ThreadData } from './heartbeat-thread.ts'

const { url, apiKey, pulse, margin, maxStall } = workerData as ThreadData
const port = parentPort!
const lessor = await open(url, apiKey === undefined ? {} : { apiKey })
const renewer = new BackupRenewer({ lessor, clock, pulse: new LoopPulse(pulse), margin, maxStall })

port.on('message', (message: WorkerMessage) => {
  if (message === 'close') void close()
  else if ('page' in message) renewer.addPage(message.page)
  else renewer.mindTerm(message.shortest)
})
port.postMessage('ready')

async function close(): Promise<void> {
  renewer.close()
  await lessor[Symbol.asyncDispose]()
  port.close()
}
