/**
 * The secret beside a data file that a server owns. A user who may open the file may do everything with its leases. While a server owns
 * the file, the same user shows this secret to the server instead.
 */
import { lstatSync } from 'node:fs'
import { networkInterfaces } from 'node:os'
import { LeaseError } from '../errors.ts'
import { readPrivately } from '../private-file.ts'

/** A server that owns a data file. */
export interface FileOwner {
  readonly path: string
  readonly address: string
}

/** The file with the secret, readable by the server's user alone. */
export function operatorFile(path: string): string {
  return `${path}-operator`
}

/** The format of every operator secret. Text of another format is never sent. */
export const OPERATOR_SECRET = /^lh_[\w-]{43}$/

/**
 * The secret for the server that owns the file. Undefined if there is none, or if the address is not of this machine: the owner of a file
 * always runs here. Throws if another user could have written the secret.
 */
export function operatorSecret({ path, address }: FileOwner): string | undefined {
  if (!isOfThisMachine(address)) return undefined
  let secret: string
  try {
    secret = readPrivately(operatorFile(path))
  } catch (error) {
    if (error instanceof LeaseError) throw error
    return undefined // this server has no secret
  }
  return OPERATOR_SECRET.test(secret) ? secret : undefined
}

function isOfThisMachine(address: string): boolean {
  const [, host = '', rest = ''] = /^[a-z]+:\/\/(\[[\da-f:.]+\]|[^/:]*)(.*)$/i.exec(address) ?? []
  if (host === '') return isOwnSocket(rest)
  if (!/^(:\d+)?\/?$/.test(rest)) return false
  const ip = host.replace(/^\[|\]$/g, '')
  if (/^127(\.\d{1,3}){3}$|^::1$|^localhost$/i.test(ip)) return true
  return Object.values(networkInterfaces()).some(addresses => addresses?.some(own => own.address === ip))
}

function isOwnSocket(path: string): boolean {
  try {
    const found = lstatSync(decodeURIComponent(path))
    return found.isSocket() && (process.getuid === undefined || found.uid === process.getuid())
  } catch {
    return false
  }
}
