/** What happens to the leases of this process, for those who listen on `node:diagnostics_channel`. Costs nothing while nobody does. */
import { channel } from 'node:diagnostics_channel'

const channels = {
  acquired: channel('leasehold:acquired'),
  queued: channel('leasehold:queued'),
  renewed: channel('leasehold:renewed'),
  released: channel('leasehold:released'),
  jeopardy: channel('leasehold:jeopardy'),
  lost: channel('leasehold:lost'),
}

export function publish(name: keyof typeof channels, message: () => object): void {
  if (channels[name].hasSubscribers) channels[name].publish(message())
}
