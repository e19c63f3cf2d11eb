/**
 * Where a setting comes from: a flag, else the environment, else the configuration file, else the default.
 *
 * The configuration file is the one that `--config` names, else `leasehold.json` beside the data file. One that was merely found there must
 * belong to us or to root and be writable by nobody else: who can write it decides what a server does.
 */
import { existsSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defaultUrl } from '../open.ts'
import { misconfigured } from './exit.ts'

type Environment = Readonly<Record<string, string | undefined>>

export interface Flags {
  readonly store?: string
  readonly config?: string
  readonly holder?: string
}

export interface Settings {
  readonly url: string
  /** Whose mistake a bad URL is: the caller's, or that of the environment or a file. */
  readonly from: 'flag' | 'environment' | 'file' | 'default'
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
  const named = flags.store ?? given(LEASEHOLD_URL)
  const file = flags.config ?? beside(named ?? defaultUrl(env))
  const config = file === undefined ? {} : read(file, flags.config !== undefined)
  const from = flags.store !== undefined ? 'flag' : named !== undefined ? 'environment' : config.store !== undefined ? 'file' : 'default'
  return {
    url: absolute(named ?? config.store ?? defaultUrl(env)),
    from,
    holder: flags.holder ?? given(LEASEHOLD_HOLDER) ?? config.holder,
    apiKey: given(LEASEHOLD_API_KEY) ?? config.apiKey,
    serve: config.serve ?? {},
    file,
  }
}

/** An empty variable is as good as none: that is how people unset them in a unit file. */
function given(value: string | undefined): string | undefined {
  return value === '' ? undefined : value
}

/** A child may run in another folder, and must meet us all the same. */
function absolute(url: string): string {
  const path = pathOf(url)
  return path === undefined || path === '' ? url : `file:${resolve(path)}`
}

/** The file behind a `file:` URL. */
export function pathOf(url: string): string | undefined {
  if (!/^file:/i.test(url)) return undefined
  return /^file:\/\//i.test(url) ? fileURLToPath(url) : url.slice('file:'.length)
}

/** For words and logs: without the user and the password that may stand in it. */
export function shown(url: string): string {
  return url.replace(/^([a-z][a-z0-9+.-]*:\/\/)[^/@]*@/i, '$1')
}

function beside(url: string): string | undefined {
  const path = pathOf(url)
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
