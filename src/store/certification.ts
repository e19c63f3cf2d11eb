/**
 * `leasehold certify` needs this of an engine: fresh logs under names of their own, the faults that the store suite asks for, and their removal. Nothing but
 * these logs is touched. `remove` reports in words what it could not delete.
 */
import type { Store } from '../store.ts'

/** A check that could not be made, and why. It counts neither for nor against the engine. */
export class NotTried extends Error {
  override readonly name = 'NotTried'
}

export interface EngineUnderTest {
  /** Creates one more empty log. */
  log(): ScratchLog
  /** The addresses whose connections can be routed through a cuttable proxy, or why they cannot. */
  readonly addresses: readonly EngineAddress[] | NotTried
  /** The URL of a log, with each address replaced by a local port. */
  through(url: string, ports: readonly number[]): string
  /** Removes every log that was created here. Returns descriptions of what is left behind. */
  remove(): Promise<readonly string[]>
  /** True if there is a server that an operator can restart. */
  readonly canRestart: boolean
}

/** A log and its faults: the fixture of `storeSuite`, with a URL. */
export interface ScratchLog {
  readonly url: string
  store(): Store
  owner(name: string): Store
  forgetOwner?(): Promise<void>
  loseTail(count: number): Promise<void>
  copy?(): Promise<() => Promise<void>>
  linked?(): Promise<never>
}

export interface EngineAddress {
  readonly host: string
  readonly port: number
}

/** An engine may take this long, in ms, to answer the requests that only certify sends. */
export const CERTIFY_TIMEOUT = 10_000

export const ENCRYPTED = new NotTried(
  'the connection is encrypted: a proxy in between cannot recognize an answer, nor present the right certificate',
)

/** The parts of a scratch log that are the same for every engine that several processes share. */
export const sharedLog = {
  /** Without this function the suite would accept a store that does not claim to be owned, and report that it passed. */
  owner(): never {
    throw new NotTried('this store is shared by all processes that open it, and has no owner')
  },
  /** Lost answers have a check of their own (cli/certify/fault.ts). The rights of a user's engine are left alone. */
  async linked(): Promise<never> {
    throw new NotTried('this needs a user whose rights are withdrawn meanwhile, which certify does not do to your engine')
  },
}

/** The URL with `name=` instead of any name it had. */
export function withName(url: string, name: string): string {
  const [address, query] = url.split('?', 2)
  const settings = new URLSearchParams(query)
  settings.set('name', name)
  return `${address}?${settings}`
}

/** The URL with its host and port replaced by a local port. */
export function withLocalPort(url: string, [port]: readonly number[]): string {
  const changed = new URL(url)
  changed.hostname = '127.0.0.1'
  changed.port = String(port)
  return changed.href
}

export function numbered(prefix: string): () => string {
  let logs = 0
  return () => `${prefix}-${++logs}`
}

/** Cutting off the end of a log needs rights that Leasehold itself does not. */
export async function orNotTried(done: Promise<void>): Promise<void> {
  try {
    await done
  } catch (error) {
    throw new NotTried(`the user may not cut off the end of a log: ${messageOf(error)}`, { cause: error })
  }
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
