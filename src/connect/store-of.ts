/** Makes the store that a URL names. */
import { type Clock, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { STORES, storeModule } from '../store/modules.ts'
import type { Ownership } from '../store/store-module.ts'
import type { Store } from '../store.ts'
import { redactedUrl, schemeOf } from './url.ts'

export interface StoreOptions {
  readonly clock?: Clock
  /** Requests ownership of the log, under this name. The profile of the store says whether it was granted. */
  readonly own?: Ownership
}

/** The store that `url` names, not opened yet. */
export async function storeOf(url: string, { clock = systemClock, own }: StoreOptions = {}): Promise<Store> {
  const scheme = schemeOf(url)
  const module = storeModule(scheme)
  if (module === undefined) throw unknownUrl(url, scheme)
  return module.fromUrl(url, { clock, own })
}

function unknownUrl(url: string, scheme: string | undefined): LeaseError {
  const meant = /^(\[[\da-f:.]+\]|[\w.-]+):\d{1,5}\/?$/i.test(url)
    ? `leasehold://${url}`
    : scheme === undefined && url !== ''
      ? `file:${url}`
      : ''
  const hint = meant === '' ? '' : `; did you mean ${meant}?`
  const known = [...STORES.map(module => module.url), 'leasehold://HOST'].join(' or ')
  return new LeaseError(
    'INVALID',
    `${url === '' ? 'an empty string' : redactedUrl(url)} is not a URL of a store or server: use ${known}${hint}`,
    {
      facts: { url: redactedUrl(url) },
    },
  )
}
