/** Until when certificates are valid. A file may hold several: the first one to end makes clients refuse all of it. */
import { X509Certificate } from 'node:crypto'

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

/** Wall time in ms at which the first certificate of a PEM file ends. Undefined if there is none in it. */
export function certificateEnd(pem: Buffer): number | undefined {
  const ends = [...pem.toString('latin1').matchAll(CERTIFICATE)].map(([text]) => Date.parse(new X509Certificate(text).validTo))
  return ends.length === 0 ? undefined : Math.min(...ends)
}
