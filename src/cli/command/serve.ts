/**
 * `leasehold serve`: the server. It owns its store if the store can be owned, answers on one port, and prints the address.
 *
 * A user who may open the data file may do everything with it, even while a server owns it. So the server keeps a secret beside the file, readable by
 * its user only. Commands that the file refers to the server present that secret (connect.ts).
 */
import { X509Certificate } from 'node:crypto'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { createSecureContext } from 'node:tls'
import { isatty } from 'node:tty'
import type { Command } from 'commander'
import { keepAlive, systemClock, whenAborted } from '../../clock.ts'
import type { AnnouncedEndpoint } from '../../connect/beside-protocol.ts'
import { openInPlace, openReplica } from '../../connect/connect.ts'
import { OPERATOR_SECRET, operatorFile } from '../../connect/operator-secret.ts'
import { RelocatingLessor } from '../../connect/relocating-lessor.ts'
import { announceable, ServerAnnouncement } from '../../connect/server-announcement.ts'
import { storeOf } from '../../connect/store-of.ts'
import { redactedUrl, viaOf } from '../../connect/url.ts'
import { LeaseError } from '../../errors.ts'
import { FACE_NAMES } from '../../face/face.ts'
import { parseNameMap, ResourceNames } from '../../face/resource-names.ts'
import type { Lessor } from '../../lessor.ts'
import { readPrivately } from '../../private-file.ts'
import { Replica } from '../../replica/replica.ts'
import { newSecret } from '../../server/key-secret.ts'
import type { LogFormat } from '../../server/log.ts'
import type { RegistryOptions } from '../../server/registry/listeners.ts'
import type { ServeOptions, Server, ServerLog } from '../../server/serve.ts'
import { FileStore } from '../../store/file/file.ts'
import { filePathOf } from '../../store/file/url.ts'
import type { Store } from '../../store.ts'
import { configurationError, EXIT, usageError } from '../exit.ts'
import { addGlobalOptions, type CommandInput, commandInput } from '../invocation.ts'
import { checkConflicts } from '../option-conflicts.ts'
import { collect } from '../option-values.ts'
import { hasTerminal } from '../process/process-table.ts'
import { asConfigurationError, attributeErrors } from '../settings.ts'

export interface ServeSettings extends RegistryOptions {
  readonly listen?: readonly string[]
  readonly socket?: string
  readonly tlsCert?: string
  readonly tlsKey?: string
  readonly tlsCa?: string
  readonly socketMode?: string
  readonly probe?: string
  readonly behindProxy?: boolean
  readonly host?: readonly string[]
  readonly shared?: boolean
  readonly holdRules?: boolean
  readonly nextPort?: boolean
  readonly logLevel?: string
  readonly logFormat?: string
  readonly face?: readonly string[]
  readonly faceMap?: readonly string[]
  /** In the configuration file only: stores to which a key with `admin` may move the leases. */
  readonly moveTo?: readonly string[]
  /** In the configuration file only: limits by name. */
  readonly limits?: Readonly<Record<string, unknown>>
}

const LISTS = ['listen', 'host', 'checkAllow', 'moveTo', 'face', 'faceMap']
const STRINGS = ['socket', 'socketMode', 'tlsCert', 'tlsKey', 'tlsCa', 'probe', 'logLevel', 'logFormat', 'dns', 'dnsDomain', 'udp']
const BOOLEANS = ['behindProxy', 'shared', 'holdRules', 'nextPort', 'dnsPublic', 'commandChecks']
const PATHS = ['socket', 'tlsCert', 'tlsKey', 'tlsCa']
const OBJECTS = ['limits', 'checkCommands']
const LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const
const FORMATS = ['json', 'text'] as const
/** Ms from the first INT or TERM until the process exits, whatever it waits for. Connections get the first ten seconds of it. */
const STOP_TIMEOUT = 20_000
/** --next-port tries this many further ports. */
const MAX_NEXT_PORTS = 100
/** The command follows this many moves to another store. */
const MAX_HOPS = 8

export function serve(program: Command): void {
  addGlobalOptions(program.command('serve'))
    .summary('serve a store over HTTP and RESP on one port')
    .description(
      'Serves a store over HTTP and RESP on one port, with a web page at /. A server owns its data file: commands that open the file connect to the server instead. INT or TERM stop it.',
    )
    .option('--listen <address>', 'host:port, or a port of 127.0.0.1; may be repeated (default: 127.0.0.1:7420)', collect)
    .option('--port <number>', 'a port of 127.0.0.1: the same as --listen <number>')
    .option('--socket <path>', 'a unix socket')
    .option('--socket-mode <mode>', 'who may use the socket: 0600 this user, 0660 its group too, 0666 all users (default: 0600)')
    .option('--tls-cert <file>', 'TLS certificate (PEM); HUP reads it again')
    .option('--tls-key <file>', 'private key of the certificate (PEM)')
    .option('--tls-ca <file>', 'accept only clients with a certificate of this authority (except /healthz and /readyz)')
    .option('--probe <address>', 'answer /healthz and /readyz here too, in plain HTTP, without keys and certificates, and nothing else')
    .option('--behind-proxy', 'a proxy in front of this server terminates TLS')
    .option('--host <name>', 'a host name of this server, in addition to the loopback names; may be repeated', collect)
    .option('--shared', 'share the data file with other processes (default: own it)')
    .option('--hold-rules', 'own the data file without raising the rules of its log, so that the former version can open it again')
    .option('--next-port', 'if the port is in use, take the next free one')
    .option('--log-level <level>', `${LEVELS.join(', ')} (default: info)`)
    .option('--log-format <format>', `${FORMATS.join(' or ')} lines on stderr (default: text on a terminal, json elsewhere)`)
    .option('--face <names>', `answer clients of other servers too: ${FACE_NAMES.join(', ')}; may be repeated`, collect)
    .option(
      '--face-map <rules>',
      'names of those clients that stand for other resources, for example redis/jobs=jobs; may be repeated',
      collect,
    )
    .option('--dns <address>', 'answer DNS queries for services at this address, over UDP and TCP')
    .option('--dns-domain <name>', 'the domain of those names (default: leasehold)')
    .option('--dns-public', 'allow DNS queries from other machines, although DNS has no keys')
    .option('--udp <address>', 'accept heartbeats of registrations as datagrams at this address')
    .option(
      '--check-allow <rule>',
      'addresses that health checks may reach, for example 10.0.0.0/8:8080 or *.svc.example:443; may be repeated',
      collect,
    )
    .option('--command-checks', 'allow the check commands that the configuration file defines')
    .action(async ({ port, ...rest }: ServeSettings & PortFlag, self: Command) => {
      const input = commandInput(self)
      const flags = withPort(rest, port)
      const options = { ...fromConfiguration(input), ...flags }
      await serveUntilStopped(input, options, errorAttribution(input, options, flags))
    })
}

export interface PortFlag {
  readonly port?: string
}

/** `--port N` is one more address to listen on. */
export function withPort<T extends Pick<ServeSettings, 'listen'>>(flags: T, port: string | undefined): T {
  if (port === undefined) return flags
  if (!/^\d{1,5}$/.test(port) || Number(port) > 65_535)
    throw usageError(`--port is a number from 0 to 65535, not ${port}`, 'For another host than 127.0.0.1, write: --listen HOST:PORT')
  return { ...flags, listen: [...(flags.listen ?? []), port] }
}

/** Runs `work`, which uses the named options. A mistake in them is a configuration error, unless one of them was given as a flag. */
type AttributeErrors = <T>(names: readonly (keyof ServeSettings)[], work: () => T | Promise<T>) => Promise<T>

export function errorAttribution({ settings: { file } }: CommandInput, options: ServeSettings, flags: ServeSettings): AttributeErrors {
  return async (names, work) => {
    try {
      return await work()
    } catch (error) {
      const given = names.filter(name => options[name] !== undefined)
      const fromFile = given.length > 0 && given.every(name => flags[name] === undefined)
      throw asConfigurationError(error, fromFile ? `${file} ("serve": ${given.join(', ')})` : undefined)
    }
  }
}

function socketModeOf(text: string): number {
  if (!/^0?6[06][06]$/.test(text))
    throw usageError(`--socket-mode is 0600, 0660 or 0666, not ${text}`, 'Write, for example: --socket-mode 0660')
  return Number.parseInt(text, 8)
}

const TLS = ['tlsCert', 'tlsKey', 'tlsCa'] as const
const REGISTRY = ['dns', 'dnsDomain', 'dnsPublic', 'udp', 'checkAllow', 'commandChecks', 'checkCommands'] as const

/** Checks the TLS files before anything is opened, because the errors of OpenSSL do not name the file. */
function checkTlsFiles({ tlsCert, tlsKey, tlsCa }: ServeSettings): void {
  const [cert, key, ca] = [tlsCert, tlsKey, tlsCa].map(file => {
    try {
      return file === undefined ? undefined : readFileSync(file)
    } catch (error) {
      throw usageError(`${file} cannot be read: ${(error as Error).message}`, 'Name another file, or allow this user to read it.')
    }
  })
  // Without files, this would only read the authorities of the system, which takes a third of the CPU of a start.
  if (cert === undefined && key === undefined && ca === undefined) return
  try {
    createSecureContext({ ...(cert && { cert }), ...(key && { key }), ...(ca && { ca }) })
  } catch (error) {
    const files = [tlsCert, tlsKey, tlsCa].filter(file => file !== undefined).join(', ')
    throw usageError(`${files}: ${(error as Error).message}`, 'Use a certificate and its key in PEM format, without a passphrase.')
  }
}

/** Until when the certificate is valid, for the log. Clients are refused after that. */
function validity({ tlsCert }: ServeSettings): { readonly validTo?: string } {
  return tlsCert === undefined ? {} : { validTo: new X509Certificate(readFileSync(tlsCert)).validTo }
}

/** The options under "serve" in the configuration file, with its paths resolved from its folder. */
function fromConfiguration({ settings: { serve: given, file } }: CommandInput): ServeSettings {
  for (const [name, value] of Object.entries(given)) {
    const valid = LISTS.includes(name)
      ? Array.isArray(value) && value.every(item => typeof item === 'string')
      : STRINGS.includes(name)
        ? typeof value === 'string'
        : BOOLEANS.includes(name)
          ? typeof value === 'boolean'
          : OBJECTS.includes(name) && typeof value === 'object' && value !== null
    if (!valid)
      throw configurationError(
        `"serve" in ${file} has an unknown or invalid "${name}"`,
        `Lists of strings: ${LISTS.join(', ')}. Strings: ${STRINGS.join(', ')}. true or false: ${BOOLEANS.join(', ')}. Objects: ${OBJECTS.join(', ')}.`,
      )
  }
  const paths = PATHS.flatMap(name => (given[name] === undefined ? [] : [[name, resolve(dirname(file!), given[name] as string)]]))
  return { ...given, ...Object.fromEntries(paths) } as ServeSettings
}

/** Serves the store of the settings until INT or TERM. `runBeside` runs as long as the server does, with the lessor that it serves. */
export async function serveUntilStopped(
  { settings, out }: CommandInput,
  options: ServeSettings,
  attribute: AttributeErrors,
  runBeside: (lessor: Lessor, signal: AbortSignal) => Promise<void> = async () => {},
): Promise<void> {
  const { url } = settings
  await attributeErrors(settings, () => {
    if (/^(leaseholds?|https?):/i.test(url))
      throw usageError(
        `${redactedUrl(url)} is a server, but serve needs a store`,
        'Use --store with a store: file:PATH, postgres://…, redis://… or etcd://…',
      )
  })
  await attribute([...TLS, 'dnsDomain', 'dnsPublic'], () => checkConflicts('serve', { ...options }))
  await attribute(TLS, () => checkTlsFiles(options))
  const [{ serve, addressOf }, { httpListener }, { auditTo, serverLog }, { limitsFrom }, { openRegistryListeners }] = await Promise.all([
    import('../../server/serve.ts'),
    import('../../server/http/http-listener.ts'),
    import('../../server/log.ts'),
    import('../../server/limits.ts'),
    import('../../server/registry/listeners.ts'),
  ])
  // Before a store is opened for it.
  await attribute(['listen'], () => void (options.listen ?? []).map(addressOf))
  const [{ mcpRoute }, { hookRoute }] = await Promise.all([import('../../mcp/http-route.ts'), import('../../guard/hook-route.ts')])
  const { logLevel = 'info', logFormat = process.stderr.isTTY ? 'text' : 'json' } = options // the actions of operators are logged at info
  await attribute(['logLevel'], () => {
    if (!(LEVELS as readonly string[]).includes(logLevel))
      throw usageError(`unknown log level ${logLevel}`, `Known levels: ${LEVELS.join(', ')}.`)
  })
  await attribute(['logFormat'], () => {
    if (!(FORMATS as readonly string[]).includes(logFormat))
      throw usageError(`unknown log format ${logFormat}`, `Known formats: ${FORMATS.join(', ')}.`)
  })
  process.stderr.on('error', () => {}) // a log without a reader must not end the server
  const format = logFormat as LogFormat
  const log = serverLog({ level: logLevel as (typeof LEVELS)[number], format, to: process.stderr })
  const note = (sentence: string) => (format === 'text' ? out.note(sentence) : log.info({}, sentence))
  const limits = await attribute(['limits'], () => limitsFrom(options.limits))
  const faces = await attribute(['face'], async () => (await import('../../face/faces.ts')).loadFaces(options.face ?? []))
  const faceNames = await attribute(['faceMap'], () => new ResourceNames(parseNameMap(options.faceMap ?? [])))
  const stop = listenForStop()
  const startedInTerminal = [0, 1, 2].some(fd => isatty(fd))
  const letExit = keepAlive(systemClock)
  try {
    for (;;) {
      const reason = await serveOnce()
      if (!(reason instanceof Error)) return
      if (!(reason instanceof LeaseError && reason.code === 'DIVERGED')) throw reason
      // This process has seen the lost records. When it opens the log again, counters continue above all that it saw. Another process could not know.
      log.error({ error: reason.message }, 'the log lost records: a new generation begins')
    }
  } finally {
    letExit()
    stop.removeListeners()
  }

  async function serveOnce(): Promise<unknown> {
    const { store, replica, owned, url } = await attributeErrors(settings, () =>
      openFollowingMoves(viaOf(settings.url).url, { own: options.shared !== true, holdRules: options.holdRules === true, log }),
    )
    if (url !== viaOf(settings.url).url)
      log.warn(
        { store: 'moved', to: redactedUrl(url) },
        `the leases of ${redactedUrl(settings.url)} have moved to ${redactedUrl(url)}, which is served instead`,
      )
    // When the leases move to another store, the server follows them.
    await using lessor = new RelocatingLessor(replica, {
      open: async there => {
        const opened = await openInPlace(there)
        log.warn({ store: 'moved', to: redactedUrl(there) }, `the leases have moved to ${redactedUrl(there)}, which is served from now on`)
        return opened
      },
    })
    await using announcement = owned ? undefined : await ServerAnnouncement.open(url, { clock: systemClock, failed: logAnnouncing(log) })
    const path = filePathOf(url)
    const operator = owned && path !== undefined ? operatorBeside(path) : undefined
    const listening = {
      ...{ lessor, limits, log, audit: auditTo(log), figures: () => (lessor.here instanceof Replica ? lessor.here.figures : {}) },
      dataFile: () => (lessor.here === replica ? path : undefined),
      failedAppend: () => (lessor.here instanceof Replica ? lessor.here.storeError : undefined),
      http: httpListener({
        hosts: options.host ?? [],
        routes: [mcpRoute(), hookRoute()],
        ...(owned && path !== undefined && { activityFile: `${path}.activity` }),
      }),
      faces,
      faceNames,
      ...(options.socket !== undefined && { socket: resolve(options.socket) }),
      ...(options.socketMode !== undefined && { socketMode: await attribute(['socketMode'], () => socketModeOf(options.socketMode!)) }),
      ...(options.tlsCert !== undefined && {
        tls: { cert: options.tlsCert, key: options.tlsKey!, ...(options.tlsCa !== undefined && { ca: options.tlsCa }) },
      }),
      ...(options.probe !== undefined && { probe: options.probe }),
      ...(options.behindProxy === true && { behindProxy: true }),
      ...(operator !== undefined && { operator }),
      ...(options.moveTo !== undefined && { moveTo: options.moveTo }),
      ...(announcement !== undefined && { beside: announcement.check }),
      // Checked here: a misspelt option would be dropped in silence.
    } satisfies Partial<ServeOptions>
    const addresses = options.listen ?? (options.socket === undefined ? ['127.0.0.1:7420'] : [])
    await using server = await attribute(['listen', 'probe'], () =>
      listen(serve, { ...listening, listen: addresses }, options.nextPort === true),
    )
    const announceBeside = () => announcement?.announce(lessor.here === replica ? announceableOf(server, options) : [])
    const reload = () => {
      // The terminal was closed, so the user could neither see nor stop the server any more.
      if (startedInTerminal && !hasTerminal()) return stop.now()
      if (options.tlsCert === undefined) return log.info({}, 'HUP: this server has no certificates to read again')
      server
        .reload()
        .then(announceBeside)
        .then(() => log.info({ tls: 'reloaded', ...validity(options) }, 'the certificates were read again'))
        .catch(error =>
          log.error(
            { error: String(error), files: [options.tlsCert, options.tlsKey, options.tlsCa].filter(file => file !== undefined) },
            'the certificates could not be read again; the old ones stay in use',
          ),
        )
    }
    process.on('SIGHUP', reload)
    await using registry = await attribute(REGISTRY, () => openRegistryListeners(server, options, { clock: systemClock, log }))
    // If the leases have moved in the meantime, this file must not refer to the server.
    if (owned && lessor.here === replica) await announce(store, server, options.tlsCert !== undefined)
    await announceBeside()
    // Clients that opened the former store follow the leases themselves.
    lessor.onMoved(() => void announceBeside())
    await printAddresses(redactedUrl(url), { out, note }, server, options, registry.opened)
    const leave = new AbortController()
    const running = runBeside(lessor, leave.signal)
    const reason = await Promise.race([stop.requested, storeLost(lessor)])
    log.info({ stopping: typeof reason === 'string' ? reason : 'store' }, 'the server stops: requests in progress are answered')
    leave.abort()
    await running
    process.off('SIGHUP', reload)
    if (!(reason instanceof Error)) exitAfterTimeout(log)
    await server.close()
    log.info({ stopped: true }, 'the server has stopped')
    return reason
  }
}

/** Opens the store, or the one to which its leases have moved: an operator who restarts a server may not know of the move. */
async function openFollowingMoves(
  first: string,
  { own, holdRules, log }: { readonly own: boolean; readonly holdRules: boolean; readonly log: ServerLog },
): Promise<{ readonly store: Store; readonly replica: Replica; readonly owned: boolean; readonly url: string }> {
  for (let url = first, hops = 0; ; hops++) {
    try {
      const store = await storeOf(url, own ? { own: { name: 'leasehold serve' } } : {})
      const owned = !store.profile.shared
      const replica = await openReplica(store, url, {
        ...{ owned, holdRules, server: true },
        crowded: message => log.warn({ store: redactedUrl(url) }, message),
        raised: (from, to) =>
          log.warn(
            { rules: to, from },
            `the rules of the log were raised from version ${from} to ${to}: an older build cannot open it any more`,
          ),
      })
      const { moved } = (await replica.read({ kind: 'summary' })).value
      if (!moved) return { store, replica, owned, url }
      await replica[Symbol.asyncDispose]()
      if (hops === MAX_HOPS)
        throw new LeaseError('INVALID', `the leases have moved ${hops} times, and are not at ${redactedUrl(url)} either`)
      url = moved
    } catch (error) {
      if (url === first || !(error instanceof LeaseError)) throw error
      const message = `the leases of ${redactedUrl(first)} have moved to ${redactedUrl(url)}, which cannot be opened here: ${error.message}`
      throw new LeaseError(error.code, message, { cause: error, reason: error.reason, facts: error.facts })
    }
  }
}

async function listen(
  serve: (options: ServeOptions) => Promise<Server>,
  options: ServeOptions & { readonly listen: readonly string[] },
  nextPort: boolean,
) {
  for (let tries = 0; ; tries++) {
    try {
      return await serve(options)
    } catch (error) {
      const taken = error instanceof LeaseError && error.facts.inUse !== undefined
      if (!taken || !nextPort || tries === MAX_NEXT_PORTS) throw error
      options = { ...options, listen: options.listen.map(withNextPort) }
    }
  }
}

function withNextPort(address: string): string {
  return address.replace(/\d+$/, port => String(Math.min(65_535, Number(port) + 1)))
}

/**
 * Exits even if a store does not close, or a probe or a name lookup does not end. The leases are in the log, as after a crash.
 */
function exitAfterTimeout(log: ServerLog): void {
  const exit = () => {
    log.error({ within: STOP_TIMEOUT }, 'the server did not stop in time: exiting without waiting for the rest')
    process.exit(EXIT.unavailable)
  }
  systemClock.after(STOP_TIMEOUT, exit)
}

/** The store is served in any case: only clients that look for the server there do not find it. */
function logAnnouncing(log: ServerLog): (error: LeaseError | undefined) => void {
  return error => {
    if (error === undefined) log.info({}, "this server is announced in its store again: clients with via: 'server' find it")
    else log.warn({ error: error.message }, "this server cannot be announced in its store: clients with via: 'server' use the store itself")
  }
}

function announceableOf({ addresses }: Server, { tlsCert, tlsCa }: ServeSettings): AnnouncedEndpoint[] {
  const fingerprint = tlsCert === undefined ? undefined : new X509Certificate(readFileSync(tlsCert)).fingerprint256
  return announceable(addresses, { clock: systemClock, fingerprint, clientCertificates: tlsCa !== undefined })
}

/** Records the server's address in the data file. Commands that open the file connect to it. */
async function announce(store: Store, { addresses }: Server, tls: boolean): Promise<void> {
  const [address] = addresses.filter(found => !found.startsWith('/'))
  const [socket] = addresses.filter(found => found.startsWith('/'))
  if (!(store instanceof FileStore)) return
  // Users of the file are on this machine: with a socket they need not trust a certificate that was issued for other machines.
  if (socket !== undefined && (tls || address === undefined))
    await store.announce(`leasehold://${socket.split('/').map(encodeURIComponent).join('/')}`)
  else if (address !== undefined) await store.announce(`${tls ? 'leaseholds' : 'leasehold'}://${reachable(address)}`)
}

/** An address that stands for all addresses of the machine is reachable by loopback. */
function reachable(address: string): string {
  return address.replace(/^0\.0\.0\.0:/, '127.0.0.1:').replace(/^\[::\]:/, '[::1]:')
}

/** The address of the web page goes to stdout, for scripts. */
async function printAddresses(
  where: string,
  { out, note }: { readonly out: CommandInput['out']; readonly note: (sentence: string) => void },
  { addresses, probeAddress }: Server,
  { tlsCert }: ServeSettings,
  registryListeners: readonly string[],
): Promise<void> {
  const scheme = tlsCert === undefined ? 'http' : 'https'
  const pages = addresses.filter(found => !found.startsWith('/')).map(address => `${scheme}://${reachable(address)}/`)
  if (out.json)
    return out.data({ serving: where, listening: addresses, page: pages[0], ...(probeAddress !== undefined && { probe: probeAddress }) })
  note(`serving ${where} on ${addresses.join(', ')}. To stop it, press Ctrl-C or send TERM`)
  if (probeAddress !== undefined) note(`probes: http://${probeAddress}/healthz and /readyz`)
  for (const listener of registryListeners) note(listener)
  for (const page of pages) await out.text(page)
}

/** A server ends when it cannot follow its store any more. Clients then use another server, or wait for the next. */
function storeLost({ signal }: RelocatingLessor): Promise<unknown> {
  return new Promise(resolve => whenAborted(signal, () => resolve(signal.reason)))
}

/** The first INT or TERM stops the server in order. A second one ends the process at once. */
function listenForStop(): { readonly requested: Promise<string>; now(): void; removeListeners(): void } {
  const names = ['SIGINT', 'SIGTERM'] as const
  let onSignal = (_: string) => {}
  const requested = new Promise<string>(resolve => {
    onSignal = signal => {
      removeListeners()
      resolve(signal)
    }
  })
  const removeListeners = () => {
    for (const name of names) process.off(name, onSignal)
  }
  for (const name of names) process.on(name, onSignal)
  return { requested, now: () => onSignal('SIGHUP'), removeListeners }
}

/**
 * The secret beside the data file. It outlives the server, because commands that connected before a restart present it afterwards. A file that another
 * user could have written is replaced.
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
