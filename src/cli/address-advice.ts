/** What to type instead, when the store or server of a command cannot be used because its URL is wrong. */
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
  const { message, facts } = error
  const write = (right: string) => (urlSource === undefined ? `Write: --store ${shellWord(right)}` : `Correct it in ${urlSource}: ${right}`)
  if (typeof facts.meant === 'string') return write(facts.meant)
  if (typeof facts.path === 'string' && facts.reason !== 'damaged') return fileAdvice(facts.path, facts.reason, write)
  const shown = redactedUrl(url)
  const scheme = schemeOf(shown) ?? ''
  const [, right] = /(?:use|write) (https?|leaseholds?):\/\/ instead of \w+:\/\//i.exec(message) ?? []
  if (right !== undefined) return write(shown.replace(/^\w+/, right))
  if (message.includes('does not speak TLS'))
    return write(shown.replace(/^(https|leaseholds):/i, scheme === 'https' ? 'http:' : 'leasehold:'))
  if (message.includes('not trusted here')) {
    const place = shown.replace(/^https?:/i, 'leaseholds:').replace(/\/$/, '')
    return `Name the authority that signed its certificate: --store ${shellWord(`${place}?ca=FILE`)}, or NODE_EXTRA_CA_CERTS=FILE`
  }
  if (message.includes('this is Leasehold')) return write(shown.replace(/^\w+/, 'leasehold'))
  if (/^https?$/.test(scheme)) return httpAdvice(message, error.code, shown, write)
  if (/^leaseholds?$/.test(scheme)) return serverAdvice(message, shown)
  return undefined
}

function fileAdvice(path: string, reason: unknown, write: (right: string) => string): string | undefined {
  if (reason === 'folder') return write(`file:${join(path, 'leasehold.db')}`)
  if (reason === 'foreign') return write(`file:${join(dirname(path), 'leasehold.db')}`)
  return undefined
}

function httpAdvice(message: string, code: LeaseError['code'], shown: string, write: (right: string) => string): string | undefined {
  const origin = URL.canParse(shown) ? new URL(shown).origin : shown
  if (code === 'NOT_FOUND' && origin !== shown.replace(/\/$/, '')) return write(origin)
  if (message.includes('which no Leasehold server does'))
    return `Another program answers at ${origin}. Check the port: a Leasehold server listens on 7420 unless it was told another.`
  if (/ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH/.test(message)) return notThere(origin.replace(/^https?:\/\//, ''))
  return undefined
}

function serverAdvice(message: string, shown: string): string | undefined {
  const path = /^leasehold:\/\/(\/.*)$/i.exec(shown)?.[1]
  if (path !== undefined) return `Start the server with --socket ${shellWord(path)}, or check the path and who may use the socket.`
  const place = shown.replace(/^leaseholds?:\/\//i, '').replace(/[/?].*$/, '')
  if (message.includes('has closed the connection') || message.includes('does not answer as a Leasehold server'))
    return `Another program may answer at ${place}. Check the port: a Leasehold server listens on 7420 unless it was told another.`
  return message.includes('cannot be reached') ? notThere(place) : undefined
}

function notThere(place: string): string {
  const local = /^(localhost|127\.|\[::1\])/.test(place)
  const start = local
    ? `Start one there: leasehold serve --listen ${/:\d+$/.test(place) ? place : `${place}:7420`}, or correct`
    : 'Check that it runs, and correct'
  return `${start} the address.`
}
