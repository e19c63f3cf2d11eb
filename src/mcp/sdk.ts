/** Loads the official MCP SDK, an optional peer dependency, when it is used. */
import { LeaseError } from '../errors.ts'

export type ServerSdk = typeof import('@modelcontextprotocol/server')
export type StdioSdk = typeof import('@modelcontextprotocol/server/stdio')

const PACKAGE = '@modelcontextprotocol/server'

export function loadServerSdk(): Promise<ServerSdk> {
  return import('@modelcontextprotocol/server').catch(missing)
}

export function loadStdioSdk(): Promise<StdioSdk> {
  return import('@modelcontextprotocol/server/stdio').catch(missing)
}

function missing(cause: unknown): never {
  const { code } = cause as { readonly code?: string }
  if (code !== 'ERR_MODULE_NOT_FOUND') throw cause
  throw new LeaseError('UNSUPPORTED', `MCP needs the package ${PACKAGE}, which is not installed: npm install ${PACKAGE}@2`, { cause })
}
