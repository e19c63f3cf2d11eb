/**
 * The settings of a command. Each comes from a flag, else the environment, else the configuration file, else the default. The default store is the
 * one of the machine (src/connect/machine-store.ts), else a file of the user.
 *
 * The configuration file is the one that `--config` names, else `leasehold.json` beside the data file. A file that was only found there must belong
 * to the user or to root and be writable by no other user, because its content decides what a server does. Paths in it are relative to its folder.
 *
 * A mistake in a flag is a usage error (64). A mistake in the environment or the file is a configuration error (78).
 */
import { existsSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { machineFile, machineStore } from '../connect/machine-store.ts'
import { userUrl } from '../connect/url.ts'
import { LeaseError } from '../errors.ts'
import { filePathOf } from '../store/file/url.ts'
import { whyBadName } from '../wording.ts'
import { addressAdvice } from './address-advice.ts'
import { CommandFailure, configurationError, EXIT, failureOf, usageError } from './exit.ts'

type Environment = Readonly<Record<string, string | undefined>>

export interface Flags {
  readonly store?: string
  readonly config?: string
  readonly holder?: string
}

/** Where to correct a setting, for messages. Undefined for a flag and for a default. */
type SettingSource = string | undefined

export interface Settings {
  readonly url: string
  readonly urlSource: SettingSource
  readonly holder: string | undefined
  readonly apiKey: string | undefined
  /** The object "serve" of the configuration file. */
  readonly serve: Readonly<Record<string, unknown>>
  /** The configuration file that was read. */
  readonly file: string | undefined
}

const NAMES = ['store', 'holder', 'apiKey', 'serve'] as const

export function settingsOf(flags: Flags, env: Environment = process.env): Settings {
  const { LEASEHOLD_URL, LEASEHOLD_HOLDER, LEASEHOLD_API_KEY } = env
  const given = flags.store ?? nonEmpty(LEASEHOLD_URL)
  const sourceOf = (flag: string | undefined, name: string): SettingSource => (flag === undefined ? `the environment (${name})` : undefined)
  const url = given === undefined ? undefined : absoluteUrl(given, process.cwd(), sourceOf(flags.store, 'LEASEHOLD_URL'))
  const file = flags.config ?? configBeside(url ?? userUrl(env))
  const config = file === undefined ? {} : read(file, flags.config !== undefined)
  const inFile = (name: string) => `${file} ("${name}")`
  const machine = url === undefined && config.store === undefined ? machineUrl(env) : undefined
  const urlSource =
    url !== undefined
      ? sourceOf(flags.store, 'LEASEHOLD_URL')
      : config.store !== undefined
        ? inFile('store')
        : machine !== undefined
          ? machineFile(env)
          : undefined
  const holder = flags.holder ?? nonEmpty(LEASEHOLD_HOLDER)
  if (holder !== undefined) requireValidHolder(holder, sourceOf(flags.holder, 'LEASEHOLD_HOLDER'))
  else if (config.holder !== undefined) requireValidHolder(config.holder, inFile('holder'))
  return {
    url: url ?? (config.store === undefined ? (machine ?? userUrl(env)) : absoluteUrl(config.store, dirname(resolve(file!)), urlSource)),
    urlSource,
    holder: holder ?? config.holder,
    apiKey: nonEmpty(LEASEHOLD_API_KEY) ?? config.apiKey,
    serve: config.serve ?? {},
    file,
  }
}

/** The store that all users of this machine share, if there is one. */
function machineUrl(env: Environment): string | undefined {
  try {
    return machineStore(env)
  } catch (error) {
    if (error instanceof LeaseError) throw configurationError(error.message, 'Name a store with --store or LEASEHOLD_URL meanwhile.', error)
    throw error
  }
}

/** Runs `work`, which opens the configured store. A mistake in its URL is reported with the place where the URL was set. */
export async function attributeErrors<T>(settings: Settings, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const next = addressAdvice(error, settings)
    const attributed = asConfigurationError(error, settings.urlSource)
    throw next === undefined ? attributed : new CommandFailure({ ...failureOf(attributed), next }, { cause: error })
  }
}

/** Turns an error about a wrong value into a configuration error that names `source`. Returns other errors unchanged. */
export function asConfigurationError(error: unknown, source: SettingSource): unknown {
  const wrongValue =
    (error instanceof LeaseError && error.code === 'INVALID') || (error instanceof CommandFailure && error.failure.exit === EXIT.usage)
  return wrongValue && source !== undefined ? configurationError(error.message, `Correct it in ${source}.`, error) : error
}

/** The kernel would reject the name later. Reject it before the store is opened. */
function requireValidHolder(holder: string, source: SettingSource): void {
  const bad = whyBadName(holder)
  if (bad !== undefined) throw asConfigurationError(usageError(`the holder's name ${bad}`, 'Use another name: --holder NAME'), source)
}

/** Treats an empty variable as unset: in a unit file there is no other way to unset one. */
function nonEmpty(value: string | undefined): string | undefined {
  return value === '' ? undefined : value
}

/** Makes the path of a file URL absolute, so that a child finds the same file from another folder. */
function absoluteUrl(url: string, folder: string, source: SettingSource): string {
  try {
    const path = filePathOf(url)
    return path === undefined || path === '' ? url : `file:${resolve(folder, path)}`
  } catch (error) {
    throw asConfigurationError(error, source)
  }
}

function configBeside(url: string): string | undefined {
  const path = filePathOf(url)
  if (path === undefined) return undefined
  const file = join(dirname(resolve(path)), 'leasehold.json')
  return existsSync(file) ? file : undefined
}

interface ConfigurationFile {
  readonly store?: string
  readonly holder?: string
  readonly apiKey?: string
  readonly serve?: Readonly<Record<string, unknown>>
}

function read(file: string, named: boolean): ConfigurationFile {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
    if (!named) requireTrustedOwner(file)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === undefined) throw error
    throw configurationError(
      `the configuration file ${file} cannot be read: ${message}`,
      'Correct its path or rights, or name another file with --config.',
      error,
    )
  }
  let config: unknown
  try {
    config = JSON.parse(text)
  } catch (error) {
    throw configurationError(
      `the configuration file ${file} is not JSON: ${(error as Error).message}`,
      'Correct the file, or name another with --config.',
      error,
    )
  }
  if (typeof config !== 'object' || config === null || Array.isArray(config))
    throw configurationError(`the configuration file ${file} is not an object`, 'Write an object: { "store": "file:…", … }.')
  for (const [name, value] of Object.entries(config)) {
    if (!(NAMES as readonly string[]).includes(name))
      throw configurationError(`the configuration file ${file} has an unknown setting "${name}"`, `Known settings: ${NAMES.join(', ')}.`)
    const valid =
      name === 'serve' ? typeof value === 'object' && value !== null && !Array.isArray(value) : typeof value === 'string' && value !== ''
    if (!valid)
      throw configurationError(`"${name}" in ${file} must be ${name === 'serve' ? 'an object' : 'a non-empty string'}`, 'Correct it.')
  }
  return config
}

function requireTrustedOwner(file: string): void {
  const { uid, mode } = statSync(file)
  const trusted = uid === 0 || uid === process.getuid?.() || process.getuid === undefined
  if (trusted && (mode & 0o022) === 0) return
  throw configurationError(
    `the configuration file ${file} ${trusted ? 'can be written by other users' : 'belongs to another user'}, so it is not read`,
    `Remove that right (chmod go-w), remove the file, or name it with --config if you trust it.`,
  )
}
