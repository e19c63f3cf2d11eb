/** The guard's decision without a server: this process opens the store itself. Loads the whole library. */
import { connect } from '../connect/connect.ts'
import { decide } from '../guard/guard.ts'
import type { GuardDecision } from '../guard/hook-answer.ts'
import type { HookEvent } from '../guard/hook-event.ts'
import type { AgentProcess } from '../guard/host-process.ts'
import { locateHere } from '../guard/locate.ts'
import { settingsOf } from './settings.ts'

export interface HereOptions {
  readonly event: HookEvent
  readonly host: AgentProcess | undefined
  readonly url?: string
  readonly agent?: string
}

export async function decideHere({ event, host, url, agent }: HereOptions): Promise<GuardDecision> {
  const { url: store, apiKey } = settingsOf(url === undefined ? {} : { store: url })
  await using leases = await connect(store, { holder: 'leasehold guard', ...(apiKey !== undefined && { apiKey }) })
  return await decide(event, {
    ...{ leases, locate: locateHere() },
    ...(agent !== undefined && { agent }),
    ...(host !== undefined && { process: host }),
  })
}
