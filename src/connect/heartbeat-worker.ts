/** The thread of a pacemaker: opens the same place once more, as a proposer of its own, and stands in for the main loop. */
import { parentPort, workerData } from 'node:worker_threads'
import { systemClock as clock } from '../clock.ts'
import { BackupRenewer } from '../holder/backup-renewer.ts'
import { LoopPulse, type WorkerMessage } from '../holder/worker-heartbeat.ts'
import { open } from './connect.ts'
import type { ThreadData } from './heartbeat-thread.ts'

const { url, apiKey, pulse, margin, maxStall } = workerData as ThreadData
const port = parentPort!
const lessor = await open(url, apiKey === undefined ? {} : { apiKey })
const standIn = new BackupRenewer({ lessor, clock, pulse: new LoopPulse(pulse), margin, maxStall })

port.on('message', (message: WorkerMessage) => {
  if (message === 'close') void close()
  else if ('page' in message) standIn.addPage(message.page)
  else standIn.mindTerm(message.shortest)
})
port.postMessage('ready')

async function close(): Promise<void> {
  standIn.close()
  await lessor[Symbol.asyncDispose]()
  port.close()
}
