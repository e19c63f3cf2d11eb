/**
 * The description of a store that `connect`, `leasehold certify`, the tests and the docs read.
 *
 * A new store is its folder, its test, and one line in `modules.ts`. Everything that is particular to an engine, from the form of its URL
 * to how its log can be damaged, is in its folder and reached from its module.
 *
 * A module loads no code of its engine and no driver until one of its functions is called: `import 'leasehold'` must stay quick.
 */
import type { Clock } from '../clock.ts'
import type { Store } from '../store.ts'
import type { Announcements } from './announcements.ts'
import type { EngineUnderTest } from './certification.ts'
import type { DriverPackage } from './driver-package.ts'

export interface StoreModule {
  /** The name of the folder, of `leasehold/store/NAME`, and of the store in its profile. */
  readonly name: string
  /** URL schemes, lower-case and without the colon. The first one is named in docs/stores.md. */
  readonly schemes: readonly [string, ...string[]]
  /** Users write its URL in this way, for messages and docs. */
  readonly url: string
  /** The purpose, with the same words as docs/stores.md. */
  readonly purpose: string
  /** The npm package that a user has to install for its URL: an optional peer dependency, loaded on first use. Absent: none is needed. */
  readonly driver?: DriverPackage
  /** The engine's server, which tests start. Absent: the store needs no server. */
  readonly server?: ServerProgram

  /** The store that `url` names, not opened yet. Throws `INVALID` for a URL or an option that it does not know. */
  fromUrl(url: string, options: FromUrlOptions): Promise<Store>

  /** Opens the announcements of processes beside the log that `url` names. Absent: no other process can open it. */
  announcements?(url: string, clock: Clock): Promise<Announcements>

  /** Fresh logs on the engine at `url`, and the faults that `certify` causes there. Absent: there is nothing outside this process to certify. */
  certify?(url: string, options: CertifyOptions): Promise<EngineUnderTest>
}

export interface ServerProgram {
  readonly program: string
  /** Debian packages that the program comes in. */
  readonly packages: readonly string[]
}

export interface FromUrlOptions {
  readonly clock: Clock
  /** Asks to be the only store on the log. A store that cannot be owned ignores it; the profile says which. */
  readonly own?: Ownership | undefined
}

/** The name and address of the owner of a log, as other processes see them. */
export interface Ownership {
  readonly name: string
  /** Where the owner serves the log. */
  readonly address?: string
}

export interface CertifyOptions {
  /** The names of all logs that are created begin with this. */
  readonly prefix: string
  readonly clock: Clock
}
