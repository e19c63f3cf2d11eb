/** URLs of stores and servers: their scheme, the default URL, and how messages show them. */
import { homedir } from 'node:os'
import { isAbsolute, join } from 'node:path'
import { LeaseError } from '../errors.ts'
import { machineStore } from './machine-store.ts'

export function schemeOf(url: string): string | undefined {
  return /^([a-z][a-z0-9+.-]*):/i.exec(url)?.[1]?.toLowerCase()
}

/** The store of this machine, if an administrator has named one; else the user's own. */
export function defaultUrl(env: Readonly<Record<string, string | undefined>> = process.env): string {
  return machineStore(env) ?? userUrl(env)
}

/** `file:` with a path in the user's state folder, so that programs of one user share leases without any setting. */
export function userUrl(env: Readonly<Record<string, string | undefined>> = process.env): string {
  const { XDG_STATE_HOME: state } = env
  // The XDG specification says to ignore a relative path.
  return `file:${join(state !== undefined && isAbsolute(state) ? state : join(homedir(), '.local', 'state'), 'leasehold', 'leasehold.db')}`
}

/** The URL without its password, for messages and logs. An address of a server has no user: what stands there may be a key. */
export function redactedUrl(url: string): string {
  const [, scheme, user = '', rest] = /^([a-z][a-z0-9+.-]*:\/\/)(?:([^:@/?#]*)(?::(?!\d+[/?#]).*|[^/?#]*)@)?(.*)$/is.exec(url) ?? [
    '',
    '',
    '',
    url,
  ]
  const shown = user === '' || /^(leaseholds?|https?):/i.test(url) ? '' : `${user}@`
  return `${scheme}${shown}${rest}`.replace(/([?&](?:password|passwd|pwd|sslpassword)=)[^&]*/gi, '$1…')
}

/** A store is used by itself, or through a server that has announced itself in it. */
export type Via = 'server' | undefined

/** Takes `via=server` out of the URL of a store. */
export function viaOf(url: string, option?: Via): { readonly url: string; readonly via: Via } {
  const [, before = '', first = '', value, rest = ''] = /^([^?#]*(?:\?(?:[^#]*&)?))(via=([^&#]*))&?(.*)$/s.exec(url) ?? []
  if (first !== '' && value !== 'server') throw new LeaseError('INVALID', `via=${value} is not known: it is via=server, or left out`)
  if (option !== undefined && option !== 'server') throw new LeaseError('INVALID', `via is 'server', or left out, not ${String(option)}`)
  if (first === '') return { url, via: option }
  return { url: (before + rest).replace(/[?&]$/, ''), via: 'server' }
}
