/**
 * Tells which lease a process on a device runs under, so that use without a lease is seen.
 *
 * A process runs under a lease if it, or a process it descends from, is the one that the lease names by pid and start time, or if it carries the lease's
 * number in its environment (LEASEHOLD_LEASE, which `leasehold` sets and children inherit). A process of the same user as a holder is taken for the
 * holder's: its parent may have ended, and the environment of another user's process can be read only by root.
 *
 * Not seen: processes of a container whose pids this host does not know, and a user who runs a second, unrelated program on a device that the same user
 * holds.
 */
import type { DeviceProcess } from './device.ts'
import { ageOf, ancestors, type HostProcesses } from './host-processes.ts'

/** The labels of a lease say this about its holder's process. */
export interface HolderProcess {
  readonly lease: number
  readonly user: string
  readonly host: string
  /** 0: not known. */
  readonly pid: number
  /** Start time of `pid` in ticks since boot. */
  readonly started: number
}

export const HOLDER_LABELS = { user: 'user', host: 'host', pid: 'pid', started: 'started' } as const
/** Says for which account a lease counts that took members by their names. */
export const ACCOUNT_LABEL = 'account'

/** Labels for a lease, from which `holderOf` reads the process of its holder. */
export function holderLabels({ user, host, pid, started }: Omit<HolderProcess, 'lease'>): Record<string, string> {
  return {
    [HOLDER_LABELS.user]: user,
    [HOLDER_LABELS.host]: host,
    [HOLDER_LABELS.pid]: String(pid),
    [HOLDER_LABELS.started]: String(started),
  }
}

export function holderOf(lease: number, labels: readonly (readonly [string, string])[], holder: string): HolderProcess {
  const all = new Map(labels)
  const number = (name: string) => (/^\d{1,15}$/.test(all.get(name) ?? '') ? Number(all.get(name)) : 0)
  return {
    lease,
    user: all.get(HOLDER_LABELS.user) ?? holder,
    host: all.get(HOLDER_LABELS.host) ?? '',
    pid: number(HOLDER_LABELS.pid),
    started: number(HOLDER_LABELS.started),
  }
}

export interface AttributedProcess extends DeviceProcess {
  readonly user: string
  /** Start time in ticks since boot; 0: not known. */
  readonly started: number
  /** It has run for this long, in ms. */
  readonly age: number
  /** The lease it runs under; 0: none. */
  readonly lease: number
}

export interface AttributionContext {
  readonly processes: HostProcesses
  readonly host: string
  /** Ms since the machine booted. */
  readonly uptime: number
}

/** `holders`: the leases that hold the device. A process that has ended since the discovery is left out. */
export function attribute(
  found: readonly DeviceProcess[],
  holders: readonly HolderProcess[],
  { processes, host, uptime }: AttributionContext,
): AttributedProcess[] {
  return found.flatMap((process): AttributedProcess[] => {
    const line = ancestors(processes, process.pid)
    const [own] = line
    // Without a look at the process, for example in a container, it cannot be said that no lease covers it.
    if (own === undefined) return []
    const user = processes.userName(own.uid)
    const named = holders.find(
      holder => holder.host === host && line.some(({ pid, started }) => pid === holder.pid && started === holder.started),
    )
    const marked = Number(processes.variable(process.pid, 'LEASEHOLD_LEASE') ?? 0)
    const holder = named ?? holders.find(({ lease }) => lease === marked) ?? holders.find(holder => holder.user === user)
    return [{ ...process, user, started: own.started, age: ageOf(own, uptime), lease: holder?.lease ?? 0 }]
  })
}
