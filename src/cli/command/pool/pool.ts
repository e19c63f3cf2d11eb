/** `leasehold pool`: offers, takes and shows members of pools: the GPUs of a lab, licences, test machines. */
import type { Command } from 'commander'
import { adopt } from './adopt.ts'
import { extend, giveBack } from './change.ts'
import { drain } from './drain.ts'
import { ls, queue } from './list.ts'
import { notify } from './notify.ts'
import { offer } from './offer.ts'
import { reserve } from './reserve.ts'
import { take } from './take.ts'
import { usage } from './usage.ts'

export function pool(program: Command): void {
  const group = program
    .command('pool')
    .summary('share members of a pool, such as GPUs (offer, take, ls, queue, extend, return, reserve, adopt, usage, notify, drain)')
  for (const add of [offer, take, ls, queue, extend, giveBack, reserve, adopt, usage, notify, drain]) add(group)
}
