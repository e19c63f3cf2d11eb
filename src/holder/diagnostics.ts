/**
 * The channels of `node:diagnostics_channel` on which this process publishes what happens to its leases. A message is made only if there is a subscriber.
 *
 * A message is published where the event happens: `asking` in the caller's own async context. All messages about one lease, from the request
 * to its end, carry the same `ask`, a number that is unique within the process. (Lease ids are unique only within one log.)
 */
import { channel } from 'node:diagnostics_channel'

export const channels = {
  asking: channel('leasehold:asking'),
  queued: channel('leasehold:queued'),
  acquired: channel('leasehold:acquired'),
  refused: channel('leasehold:refused'),
  renewed: channel('leasehold:renewed'),
  released: channel('leasehold:released'),
  jeopardy: channel('leasehold:jeopardy'),
  lost: channel('leasehold:lost'),
}

export type ChannelName = keyof typeof channels
