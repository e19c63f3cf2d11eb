/**
 * Publishes what happens to the leases of this process on `node:diagnostics_channel`. Costs nothing without subscribers.
 *
 * A message is published where the event happens: `asking` in the caller's own async context. All messages about one lease, from the request
 * to its end, carry the same `ask`, a number that is unique within the process. (Lease ids are unique only within one log.)
 */
import { channel } from 'node:diagnostics_channel'

const channels = {
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

let lastRequestId = 0

export function nextRequestId(): number {
  return ++lastRequestId
}

export function publish(name: ChannelName, message: () => object): void {
  if (channels[name].hasSubscribers) channels[name].publish(message())
}
