/**
 * Where a setting comes from: a flag, else the environment, else the configuration file, else the default.
 *
 * The configuration file is the one that `--config` names, else `leasehold.json` beside the data file. One that was merely found there must
 * belong to us or to root and be writable by nobody else: who can write it decides what a server does. Paths in it are seen from its folder.
 *
 * A mistake in a flag is the caller's (64); anywhere else it is one of the configuration (78), whoever notices it.
 */
import { existsSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { defaultUrl } from '../connect/url.ts'
import { LeaseError } from '../errors.ts'
import { badName } from '../kernel/name.ts'
import { filePathOf } from '../store/file/url.ts'
import { CommandFailure, EXIT, misconfigured, usage } from './exit.ts'

type Environment = Readonly<Record<string, string | undefined>>

export interface Flags {
  readonly store?: string
  readonly config?: string
  readonly holder?: string
}

/** Where a setting stands that is to be mended there; undefined for a flag, and for what nobody has set. */
type Origin = string | undefined

export interface Settings {
  readonly url: string
  readonly from: Origin
  readonly holder: string | undefined
  readonly apiKey: string | undefined
  /** What the file says under "serve". */
  readonly serve: Readonly<Record<string, unknown>>
  /** The file that was read. */
  readonly file: string | undefined
}

const KNOWN = ['store', 'holder', 'apiKey', 'serve'] as const

export function settingsOf(flags: Flags, env: Environment = process.env): Settings {
  const { LEASEHOLD_URL, LEASEHOLD_HOLDER, LEASEHOLD_API_KEY } = env
  const said = flags.store ?? given(LEASEHOLD_URL)
  const origin = (flag: string | undefined, name: string): Origin => (flag === undefined ? `the environment (${name})` : undefined)
  const named = said === undefined ? undefined : checked(said, process.cwd(), origin(flags.store, 'LEASEHOLD_URL'))
  const file = flags.config ?? beside(named ?? defaultUrl(env))
  const config = file === undefined ? {} : read(file, flags.config !== undefined)
  const inFile = (name: string) => `${file} ("${name}")`
  const from = named !== undefined ? origin(flags.store, 'LEASEHOLD_URL') : config.store !== undefined ? inFile('store') : undefined
  const holder = flags.holder ?? given(LEASEHOLD_HOLDER)
  if (holder !== undefined) mustName(holder, origin(flags.holder, 'LEASEHOLD_HOLDER'))
  else if (config.holder !== undefined) mustName(config.holder, inFile('holder'))
  return {
    url: named ?? (config.store === undefined ? defaultUrl(env) : checked(config.store, dirname(resolve(file!)), from)),
    from,
    holder: holder ?? config.holder,
    apiKey: given(LEASEHOLD_API_KEY) ?? config.apiKey,
    serve: config.serve ?? {},
    file,
  }
}

/** Does what needs the store that is set; a mistake in naming it is told to whom it concerns. */
export async function blamed<T>({ from }: Settings, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    throw mistaken(error, from)
  }
}

/** As a mistake of the configuration, if it is a mistake and stands there. */
export function mistaken(error: unknown, from: Origin): unknown {
  const wrong =
    (error instanceof LeaseError && error.code === 'INVALID') || (error instanceof CommandFailure && error.failure.exit === EXIT.usage)
  return wrong && from !== undefined ? misconfigured(error.message, `Mend it in ${from}.`, error) : error
}

/** As the kernel will ask for it: told before anything is opened. */
function mustName(holder: string, from: Origin): void {
  const bad = badName(holder)
  if (bad !== undefined) throw mistaken(usage(`the holder's name ${bad}`, 'Give another: --holder NAME'), from)
}

/** An empty variable is as good as none: that is how people unset them in a unit file. */
function given(value: string | undefined): string | undefined {
  return value === '' ? undefined : value
}

/** With a path that others find, too: a child may run in another folder, and must meet us all the same. */
function checked(url: string, folder: string, from: Origin): string {
  try {
    const path = filePathOf(url)
    return path === undefined || path === '' ? url : `file:${resolve(folder, path)}`
  } catch (error) {
    throw mistaken(error, from)
  }
}

function beside(url: string): string | undefined {
  const path = filePathOf(url)
  if (path === undefined) return undefined
  const file = join(dirname(resolve(path)), 'leasehold.json')
  return existsSync(file) ? file : undefined
}

interface Config {
  readonly store?: string
  readonly holder?: string
  readonly apiKey?: string
  readonly serve?: Readonly<Record<string, unknown>>
}

function read(file: string, asked: boolean): Config {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
    if (!asked) mustBeOurs(file)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === undefined) throw error
    throw misconfigured(`the configuration file ${file} cannot be read: ${message}`, 'Name another with --config, or mend it.', error)
  }
  let config: unknown
  try {
    config = JSON.parse(text)
  } catch (error) {
    throw misconfigured(`the configuration file ${file} is not JSON: ${(error as Error).message}`, 'Mend it, or name another.', error)
  }
  if (typeof config !== 'object' || config === null || Array.isArray(config))
    throw misconfigured(`the configuration file ${file} is not an object`, 'Write it as { "store": "file:…", … }.')
  for (const [name, value] of Object.entries(config)) {
    if (!(KNOWN as readonly string[]).includes(name))
      throw misconfigured(`the configuration file ${file} has "${name}", which is no setting`, `There are: ${KNOWN.join(', ')}.`)
    const right =
      name === 'serve' ? typeof value === 'object' && value !== null && !Array.isArray(value) : typeof value === 'string' && value !== ''
    if (!right) throw misconfigured(`"${name}" in ${file} must be ${name === 'serve' ? 'an object' : 'a text'}`, 'Mend it.')
  }
  return config
}

function mustBeOurs(file: string): void {
  const { uid, mode } = statSync(file)
  const ours = uid === 0 || uid === process.getuid?.() || process.getuid === undefined
  if (ours && (mode & 0o022) === 0) return
  throw misconfigured(
    `${file} ${ours ? 'can be written by others' : 'belongs to another user'}, and is not read for that reason`,
    `Take that right away (chmod go-w), remove it, or name it with --config if you trust it.`,
  )
}
