/** Suggests the line to type instead, when the store or server of a command cannot be used because its URL is wrong. */
import { dirname, join } from 'node:path'
import { redactedUrl, schemeOf } from '../connect/url.ts'
import { LeaseError } from '../errors.ts'
import { shellWord } from './hints.ts'

export interface UsedAddress {
  readonly url: string
  /** Where the URL was set; undefined: by `--store`, or the default. */
  readonly urlSource: string | undefined
}

/** The last line of the report for an error on opening `url`. Undefined: nothing fits better than the advice for its code. */
export function addressAdvice(error: unknown, { url, urlSource }: UsedAddress): string | undefined {
  if (!(error instanceof LeaseError)) return undefined
  const { reason, facts } = error
  const write = (right: string) => (urlSource === undefined ? `Write: --store ${shellWord(right)}` : `Correct it in ${urlSource}: ${right}`)
  const { meant } = facts
  if (typeof meant === 'string' && reason !== 'tls-required') return write(meant)
  if (typeof facts.path === 'string' && reason !== 'damaged') return fileAdvice(facts.path, reason, write)
  const shown = redactedUrl(url)
  const scheme = schemeOf(shown) ?? ''
  if (reason === 'tls-required') return write(shown.replace(/^\w+/, typeof meant === 'string' ? meant : 'leaseholds'))
  if (reason === 'tls-unsupported') return write(shown.replace(/^(https|leaseholds):/i, scheme === 'https' ? 'http:' : 'leasehold:'))
  if (reason === 'certificate') {
    const place = shown.replace(/^https?:/i, 'leaseholds:').replace(/\/$/, '')
    return `Name the authority that signed its certificate: --store ${shellWord(`${place}?ca=FILE`)}, or NODE_EXTRA_CA_CERTS=FILE`
  }
  if (reason === 'leasehold') return write(shown.replace(/^\w+/, 'leasehold'))
  if (/^https?$/.test(scheme)) return httpAdvice(error, shown, write)
  if (/^leaseholds?$/.test(scheme)) return serverAdvice(reason, shown)
  return undefined
}

function fileAdvice(path: string, reason: LeaseError['reason'], write: (right: string) => string): string | undefined {
  if (reason === 'folder') return write(`file:${join(path, 'leasehold.db')}`)
  if (reason === 'foreign') return write(`file:${join(dirname(path), 'leasehold.db')}`)
  return undefined
}

function httpAdvice({ code, reason }: LeaseError, shown: string, write: (right: string) => string): string | undefined {
  const origin = URL.canParse(shown) ? new URL(shown).origin : shown
  if (code === 'NOT_FOUND' && origin !== shown.replace(/\/$/, '')) return write(origin)
  if (reason === 'stranger')
    return `Another program answers at ${origin}. Check the port: a Leasehold server listens on 7420 unless it was told another.`
  return reason === 'unreachable' ? notThere(origin.replace(/^https?:\/\//, '')) : undefined
}

function serverAdvice(reason: LeaseError['reason'], shown: string): string | undefined {
  const path = /^leasehold:\/\/(\/.*)$/i.exec(shown)?.[1]
  if (path !== undefined) return `Start the server with --socket ${shellWord(path)}, or check the path and who may use the socket.`
  const place = shown.replace(/^leaseholds?:\/\//i, '').replace(/[/?].*$/, '')
  if (reason === 'hung-up' || reason === 'stranger')
    return `Another program may answer at ${place}. Check the port: a Leasehold server listens on 7420 unless it was told another.`
  return reason === 'unreachable' ? notThere(place) : undefined
}

function notThere(place: string): string {
  const local = /^(localhost|127\.|\[::1\])/.test(place)
  const start = local
    ? `Start one there: leasehold serve --listen ${/:\d+$/.test(place) ? place : `${place}:7420`}, or correct`
    : 'Check that it runs, and correct'
  return `${start} the address.`
}
