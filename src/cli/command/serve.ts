/**
 * The server: owns its store where that can be owned, answers on one port, and says where.
 *
 * Whoever may open the data file may do everything, and must be able to while a server owns it: so the server keeps a secret beside the file,
 * readable by its user alone, and commands that are led from the file to the server show it (open.ts).
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { createSecureContext } from 'node:tls'
import { isatty } from 'node:tty'
import type { Command } from 'commander'
import { keepAlive, systemClock, whenAborted } from '../../clock.ts'
import { openInPlace, openReplica } from '../../connect/connect.ts'
import { OPERATOR_SECRET, operatorFile } from '../../connect/operator-secret.ts'
import { RelocatingLessor } from '../../connect/relocating-lessor.ts'
import { storeOf } from '../../connect/store-of.ts'
import { redactedUrl } from '../../connect/url.ts'
import { LeaseError } from '../../errors.ts'
import { readPrivately } from '../../private-file.ts'
import { Replica } from '../../replica/replica.ts'
import { newSecret } from '../../server/key-secret.ts'
import type { RegistryOptions } from '../../server/registry/listeners.ts'
import type { ServeOptions, Server, ServerLog } from '../../server/serve.ts'
import { FileStore } from '../../store/file/file.ts'
import { filePathOf } from '../../store/file/url.ts'
import type { Store } from '../../store.ts'
import { EXIT, misconfigured, usage } from '../exit.ts'
import { type CommandInput, commandInput, common } from '../invocation.ts'
import { mustNotContradict } from '../option-conflicts.ts'
import { hasTerminal } from '../process/process-table.ts'
import { blamed, mistaken } from '../settings.ts'

interface Options extends RegistryOptions {
  readonly listen?: readonly string[]
  readonly socket?: string
  readonly tlsCert?: string
  readonly tlsKey?: string
  readonly tlsCa?: string
  readonly behindProxy?: boolean
  readonly host?: readonly string[]
  readonly shared?: boolean
  readonly nextPort?: boolean
  readonly logLevel?: string
  /** In the configuration file only: places that an administrator's key may move the leases to. */
  readonly moveTo?: readonly string[]
  /** In the configuration file only: numbers by name. */
  readonly limits?: Readonly<Record<string, unknown>>
}

const LISTS = ['listen', 'host', 'checkAllow', 'moveTo']
const TEXTS = ['socket', 'tlsCert', 'tlsKey', 'tlsCa', 'logLevel', 'dns', 'dnsDomain', 'udp']
const SWITCHES = ['behindProxy', 'shared', 'nextPort', 'dnsPublic', 'commandChecks']
const PATHS = ['socket', 'tlsCert', 'tlsKey', 'tlsCa']
const OBJECTS = ['limits', 'checkCommands']
const LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const
/** Ms from the first INT or TERM until the process is gone, whatever it waits for. Connections are given ten of these seconds. */
const STOP_WITHIN = 20_000
/** How many ports are tried after the one that is taken. */
const PORTS = 100
/** How often leases may have moved on. */
const MAX_HOPS = 8

export function serve(program: Command): void {
  const list = (value: string, before: readonly string[] = []) => [...before, value]
  common(program.command('serve'))
    .summary('answer HTTP and RESP on one port')
    .description(
      'Serves a store over HTTP and RESP on one port, with a page at /. It owns a data file: commands that name the file are led here.',
    )
    .option('--listen <address>', 'host:port, or a port of 127.0.0.1; may be repeated (default: 127.0.0.1:7420)', list)
    .option('--socket <path>', 'a unix socket, for this user alone')
    .option('--tls-cert <file>', 'certificate, PEM; read again at HUP')
    .option('--tls-key <file>', 'its key, PEM')
    .option('--tls-ca <file>', 'let in only clients with a certificate of this authority (/healthz and /readyz need none)')
    .option('--behind-proxy', 'something in front of this server does TLS')
    .option('--host <name>', 'a name this server is called by, besides loopback ones; may be repeated', list)
    .option('--shared', 'share the data file with other processes instead of owning it')
    .option('--next-port', 'when the port is taken, the next free one')
    .option('--log-level <level>', LEVELS.join(', '))
    .option('--dns <address>', 'names of services as DNS, UDP and TCP')
    .option('--dns-domain <name>', 'what those names end in (default: leasehold)')
    .option('--dns-public', 'other machines may ask names, though DNS knows no keys')
    .option('--udp <address>', 'heartbeats of registrations by datagram')
    .option('--check-allow <rule>', 'where health checks may go: 10.0.0.0/8:8080, *.svc.example:443; may be repeated', list)
    .option('--command-checks', 'run the commands that the configuration names as checks')
    .action(async (flags: Options, self: Command) => {
      const here = commandInput(self)
      const options = { ...configured(here), ...flags }
      await run(here, options, blaming(here, options, flags))
    })
}

/** Tells a mistake in these settings to whom it concerns: the caller, if one of them was a flag. */
type Blaming = <T>(names: readonly (keyof Options)[], work: () => T | Promise<T>) => Promise<T>

function blaming({ settings: { file } }: CommandInput, options: Options, flags: Options): Blaming {
  return async (names, work) => {
    try {
      return await work()
    } catch (error) {
      const given = names.filter(name => options[name] !== undefined)
      const theirs = given.length > 0 && given.every(name => flags[name] === undefined)
      throw mistaken(error, theirs ? `${file} ("serve": ${given.join(', ')})` : undefined)
    }
  }
}

const TLS = ['tlsCert', 'tlsKey', 'tlsCa'] as const
const REGISTRY = ['dns', 'dnsDomain', 'dnsPublic', 'udp', 'checkAllow', 'commandChecks', 'checkCommands'] as const

/** Looked at before anything is opened: what is wrong with a certificate, OpenSSL tells in words for programmers. */
function mustFit({ tlsCert, tlsKey, tlsCa }: Options): void {
  const [cert, key, ca] = [tlsCert, tlsKey, tlsCa].map(file => {
    try {
      return file === undefined ? undefined : readFileSync(file)
    } catch (error) {
      throw usage(`${file} cannot be read: ${(error as Error).message}`, 'Name another file, or give the right to read this one.')
    }
  })
  try {
    createSecureContext({ ...(cert && { cert }), ...(key && { key }), ...(ca && { ca }) })
  } catch (error) {
    const files = [tlsCert, tlsKey, tlsCa].filter(file => file !== undefined).join(', ')
    throw usage(`${files}: ${(error as Error).message}`, 'Certificate and key are PEM, without a passphrase, and belong together.')
  }
}

/** What the configuration file says under "serve", with its paths as seen from its folder. */
function configured({ settings: { serve: given, file } }: CommandInput): Options {
  for (const [name, value] of Object.entries(given)) {
    const right = LISTS.includes(name)
      ? Array.isArray(value) && value.every(item => typeof item === 'string')
      : TEXTS.includes(name)
        ? typeof value === 'string'
        : SWITCHES.includes(name)
          ? typeof value === 'boolean'
          : OBJECTS.includes(name) && typeof value === 'object' && value !== null
    if (!right)
      throw misconfigured(
        `"serve" in ${file} has a bad "${name}"`,
        `Lists of texts: ${LISTS.join(', ')}. Texts: ${TEXTS.join(', ')}. true or false: ${SWITCHES.join(', ')}. Objects: ${OBJECTS.join(', ')}.`,
      )
  }
  const paths = PATHS.flatMap(name => (given[name] === undefined ? [] : [[name, resolve(dirname(file!), given[name] as string)]]))
  return { ...given, ...Object.fromEntries(paths) } as Options
}

async function run({ settings, out }: CommandInput, options: Options, blame: Blaming): Promise<void> {
  const { url } = settings
  await blamed(settings, () => {
    if (/^(leaseholds?|https?):/i.test(url))
      throw usage(`${redactedUrl(url)} is a server, and serve needs a store`, 'Name one: --store file:PATH, postgres://… and so on.')
  })
  await blame([...TLS, 'dnsDomain', 'dnsPublic'], () => mustNotContradict('serve', { ...options }))
  await blame(TLS, () => mustFit(options))
  const [{ serve }, { httpListener }, { auditTo, serverLog }, { limitsFrom }, { openRegistryListeners }] = await Promise.all([
    import('../../server/serve.ts'),
    import('../../server/http/http-listener.ts'),
    import('../../server/log.ts'),
    import('../../server/limits.ts'),
    import('../../server/registry/listeners.ts'),
  ])
  const { logLevel = 'info' } = options // what operators do is logged at this level
  await blame(['logLevel'], () => {
    if (!(LEVELS as readonly string[]).includes(logLevel))
      throw usage(`there is no log level ${logLevel}`, `There are: ${LEVELS.join(', ')}.`)
  })
  process.stderr.on('error', () => {}) // nobody reads the log any more: that ends no server
  const log = serverLog({ level: logLevel as (typeof LEVELS)[number], to: process.stderr })
  const limits = await blame(['limits'], () => limitsFrom(options.limits))
  const stop = stopping()
  const ofTerminal = [0, 1, 2].some(fd => isatty(fd))
  const stay = keepAlive(systemClock)
  try {
    for (;;) {
      const why = await serveOnce()
      if (!(why instanceof Error)) return
      if (!(why instanceof LeaseError && why.code === 'DIVERGED')) throw why
      // We are a witness of what was lost: opened again, the log goes on above all that we saw. A successor would not know.
      log.error({ error: why.message }, 'the log lost entries: a new generation begins')
    }
  } finally {
    stay()
    stop.end()
  }

  async function serveOnce(): Promise<unknown> {
    const { store, replica, owned, url } = await blamed(settings, () => whereTheyAre(settings.url, options.shared !== true))
    if (url !== settings.url)
      log.warn({ to: redactedUrl(url) }, `the leases of ${redactedUrl(settings.url)} have moved to ${redactedUrl(url)}, which is served`)
    // When the leases move to another store, so does their server.
    await using lessor = new RelocatingLessor(replica, { open: there => openInPlace(there) })
    const path = filePathOf(url)
    const operator = owned && path !== undefined ? operatorBeside(path) : undefined
    const listening = {
      ...{ lessor, limits, log, audit: auditTo(log), figures: () => (lessor.here instanceof Replica ? lessor.here.figures : {}) },
      trouble: () => (lessor.here instanceof Replica ? lessor.here.storeError : undefined),
      http: httpListener({ hosts: options.host ?? [] }),
      ...(options.socket !== undefined && { socket: resolve(options.socket) }),
      ...(options.tlsCert !== undefined && {
        tls: { cert: options.tlsCert, key: options.tlsKey!, ...(options.tlsCa !== undefined && { ca: options.tlsCa }) },
      }),
      ...(options.behindProxy === true && { behindProxy: true }),
      ...(operator !== undefined && { operator }),
      ...(options.moveTo !== undefined && { moveTo: options.moveTo }),
    }
    const addresses = options.listen ?? (options.socket === undefined ? ['127.0.0.1:7420'] : [])
    await using server = await blame(['listen'], () => listen(serve, { ...listening, listen: addresses }, options.nextPort === true))
    const reload = () => {
      // Whoever started us in a terminal has closed it, and could neither see nor stop us any more.
      if (ofTerminal && !hasTerminal()) return stop.now()
      server.reload().catch(error => log.error({ error: String(error) }, 'the certificates were not read again'))
    }
    process.on('SIGHUP', reload)
    await using registry = await blame(REGISTRY, () => openRegistryListeners(server, options, { clock: systemClock, log }))
    // It may have moved by now: then its leases are not found through this file.
    if (owned && lessor.here === replica) await announce(store, server, options.tlsCert !== undefined)
    await say(redactedUrl(url), out, server, options, registry.opened)
    const why = await Promise.race([stop.asked, lost(lessor)])
    process.off('SIGHUP', reload)
    if (!(why instanceof Error)) endInTime(log)
    await server.close()
    return why
  }
}

/** A store that says where its leases have gone leads there: whoever restarts a server knows of no move. */
async function whereTheyAre(
  first: string,
  own: boolean,
): Promise<{ readonly store: Store; readonly replica: Replica; readonly owned: boolean; readonly url: string }> {
  for (let url = first, hops = 0; ; hops++) {
    try {
      const store = await storeOf(url, own ? { own: { name: 'leasehold serve' } } : {})
      const owned = !store.profile.shared
      const replica = await openReplica(store, url, { owned })
      const { moved } = (await replica.read({ kind: 'summary' })).value
      if (!moved) return { store, replica, owned, url }
      await replica[Symbol.asyncDispose]()
      if (hops === MAX_HOPS)
        throw new LeaseError('INVALID', `the leases have moved on ${hops} times, and still are not at ${redactedUrl(url)}`)
      url = moved
    } catch (error) {
      if (url === first || !(error instanceof LeaseError)) throw error
      const message = `the leases of ${redactedUrl(first)} have moved to ${redactedUrl(url)}, which cannot be opened here: ${error.message}`
      throw new LeaseError(error.code, message, { cause: error, facts: error.facts })
    }
  }
}

async function listen(
  serve: (options: ServeOptions) => Promise<Server>,
  options: ServeOptions & { readonly listen: readonly string[] },
  next: boolean,
) {
  for (let tries = 0; ; tries++) {
    try {
      return await serve(options)
    } catch (error) {
      const taken = error instanceof LeaseError && error.facts.inUse !== undefined
      if (!taken || !next || tries === PORTS) throw error
      options = { ...options, listen: options.listen.map(above) }
    }
  }
}

function above(address: string): string {
  return address.replace(/\d+$/, port => String(Math.min(65_535, Number(port) + 1)))
}

/**
 * A store that does not let itself be closed, a probe or a look-up of a name under way: nothing that is waited for at the end keeps the process for
 * longer. Its leases stand in the log, as after a crash.
 */
function endInTime(log: ServerLog): void {
  const late = () => {
    log.error({ within: STOP_WITHIN }, 'something that was under way did not end in time: the server ends without it')
    process.exit(EXIT.unavailable)
  }
  systemClock.after(STOP_WITHIN, late)
}

/** Where commands that name the file are led. */
async function announce(store: Store, { addresses }: Server, tls: boolean): Promise<void> {
  const [address] = addresses.filter(found => !found.startsWith('/'))
  const [socket] = addresses.filter(found => found.startsWith('/'))
  if (!(store instanceof FileStore)) return
  // Whoever has the file is on this machine, and need not trust a certificate that was made for others.
  if (socket !== undefined && (tls || address === undefined))
    await store.announce(`leasehold://${socket.split('/').map(encodeURIComponent).join('/')}`)
  else if (address !== undefined) await store.announce(`${tls ? 'leaseholds' : 'leasehold'}://${reachable(address)}`)
}

/** An address that means every address of the machine is reached by its own loopback. */
function reachable(address: string): string {
  return address.replace(/^0\.0\.0\.0:/, '127.0.0.1:').replace(/^\[::\]:/, '[::1]:')
}

/** The address of the page is data: a script may want it. */
async function say(
  where: string,
  out: CommandInput['out'],
  { addresses }: Server,
  { tlsCert }: Options,
  opened: readonly string[],
): Promise<void> {
  const scheme = tlsCert === undefined ? 'http' : 'https'
  const pages = addresses.filter(found => !found.startsWith('/')).map(address => `${scheme}://${reachable(address)}/`)
  if (out.json) return out.data({ serving: where, listening: addresses, page: pages[0] })
  out.note(`serving ${where} on ${addresses.join(', ')}; INT or TERM stop it`)
  for (const door of opened) out.note(door)
  for (const page of pages) await out.text(page)
}

/** A store that cannot be followed any more is the end of its server: clients change to another, or wait for the next. */
function lost({ signal }: RelocatingLessor): Promise<unknown> {
  return new Promise(resolve => whenAborted(signal, () => resolve(signal.reason)))
}

/** The first INT or TERM stops it in order; at a second one the process ends as if nobody had listened. */
function stopping(): { readonly asked: Promise<undefined>; now(): void; end(): void } {
  const names = ['SIGINT', 'SIGTERM'] as const
  let hear = () => {}
  const asked = new Promise<undefined>(resolve => {
    hear = () => {
      end()
      resolve(undefined)
    }
  })
  const end = () => {
    for (const name of names) process.off(name, hear)
  }
  for (const name of names) process.on(name, hear)
  return { asked, now: () => hear(), end }
}

/**
 * The secret beside the data file. It outlives the server: who was led here before a restart must be known after it. One that others could have
 * put there is not believed.
 */
function operatorBeside(path: string): string {
  const file = operatorFile(path)
  try {
    const secret = readPrivately(file)
    if (OPERATOR_SECRET.test(secret)) return secret
  } catch (error) {
    if (!(error instanceof LeaseError) && (error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
  rmSync(file, { force: true })
  const secret = newSecret(systemClock)
  writeFileSync(file, secret, { mode: 0o600, flag: 'wx' })
  return secret
}
