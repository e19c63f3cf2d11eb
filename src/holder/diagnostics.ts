/**
 * What happens to the leases of this process, for those who listen on `node:diagnostics_channel`. Costs nothing while nobody does.
 *
 * A message is published where it happens: that of `asking` in the caller's own async context. All messages about one lease, from asking
 * for it to its end, carry the same `ask`, a number that no two share within a process; leases of two places may have one id.
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

let asks = 0

export function nextRequestId(): number {
  return ++asks
}

export function publish(name: ChannelName, message: () => object): void {
  if (channels[name].hasSubscribers) channels[name].publish(message())
}
