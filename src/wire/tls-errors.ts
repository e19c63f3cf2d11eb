/** Recognizes why a TLS handshake failed, so that the message to the user can say what to change. */

/** The server answered the handshake with something other than TLS: reported as a code, or by OpenSSL in the message behind EPROTO. */
export function isNotTls({ code = '', message = '' }: { readonly code?: string | undefined; readonly message?: string }): boolean {
  return /wrong.version.number|packet.length.too.long/i.test(`${code} ${message}`)
}

/** A code of certificate verification, of OpenSSL or of Node. */
export function isUntrustedCertificate(code: string | undefined): boolean {
  return (
    code !== undefined &&
    !code.startsWith('ERR_SSL') &&
    /CERT|SELF_SIGNED|UNABLE_TO_(GET|VERIFY|DECRYPT)|ALTNAME|INVALID_CA|PATH_LENGTH|INVALID_PURPOSE|HOSTNAME_MISMATCH/.test(code)
  )
}
