/** `leasehold pool`: offers, takes and shows members of pools: the GPUs of a lab, licences, test machines. */
import type { Command } from 'commander'
import { adopt } from './adopt.ts'
import { extend, giveBack } from './change.ts'
import { ls, queue } from './list.ts'
import { offer } from './offer.ts'
import { reserve } from './reserve.ts'
import { take } from './take.ts'
import { usage } from './usage.ts'

const HELP = `
Examples:
  leasehold pool offer gpus --discover nvidia                  on each host, as a service
  leasehold pool take gpus -n 2 --match 'mem>=40' -- ./train   two GPUs of this host, in CUDA_VISIBLE_DEVICES
  leasehold pool ls gpus                                       who uses what, for how long, and how much
  leasehold pool queue gpus                                    who waits for what`

export function pool(program: Command): void {
  const group = program
    .command('pool')
    .summary('share members of a pool, such as GPUs (offer, take, ls, queue, extend, return, reserve, adopt, usage)')
    .addHelpText('after', HELP)
  for (const add of [offer, take, ls, queue, extend, giveBack, reserve, adopt, usage]) add(group)
}
