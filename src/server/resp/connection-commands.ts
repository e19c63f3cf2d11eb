/** Commands about the connection and the server, such as HELLO, AUTH, PING and INFO. Every Redis client sends some of them. They are answered as Redis does. */
import { MESSAGES_VERSION, otherMessages } from '../../wire/messages.ts'
import type { RespWriter } from '../../wire/resp/writer.ts'
import { LOG_WENT_BACK } from '../listener.ts'
import { identify, identifyBeside } from './authentication.ts'
import { type RespCommand, text } from './command.ts'
import { writeValue } from './replies.ts'
import type { RespSession, SessionCommand } from './session.ts'

/** The Redis version that clients see: some choose their commands by it. */
export const REDIS_VERSION = '7.4.0'

export const CONNECTION_COMMANDS: readonly RespCommand[] = [
  {
    name: 'HELLO',
    arity: -1,
    open: true,
    summary: '[2 | 3 [AUTH user key] [SETNAME name] [BESIDE name proof] [WITNESS text] [MESSAGES version]]',
    example: ['2'],
    run: hello,
  },
  { name: 'AUTH', arity: -2, open: true, summary: '[user] key', example: ['no-such-key'], run: auth },
  {
    name: 'PING',
    arity: -1,
    open: true,
    summary: '[text]',
    example: [],
    run: session => {
      if (session.args.count === 1) return session.reply(to => to.raw('+PONG\r\n'))
      echo(session)
    },
  },
  { name: 'ECHO', arity: 2, summary: 'text', example: ['a'], run: echo },
  {
    name: 'QUIT',
    arity: -1,
    open: true,
    summary: '',
    example: [],
    run: session => {
      session.reply(to => to.simple('OK'))
      session.closeAfterReplies()
    },
  },
  {
    name: 'RESET',
    arity: 1,
    open: true,
    summary: '',
    example: [],
    run: session => {
      session.reset()
      // The protocol changes with this reply: replies to earlier commands keep theirs.
      session.reply(to => {
        session.protocol = 2
        to.protocol = 2
        to.simple('RESET')
      })
    },
  },
  {
    name: 'SELECT',
    arity: 2,
    summary: '0: there is one database',
    example: ['0'],
    run: session => {
      const known = session.args.number(1) === 0
      session.reply(to => (known ? to.simple('OK') : to.error('ERR', 'DB index is out of range')))
    },
  },
  {
    name: 'CLIENT',
    arity: -2,
    summary: 'ID | GETNAME | SETNAME name | SETINFO what value | INFO | LIST | NO-EVICT | NO-TOUCH',
    example: ['ID'],
    run: client,
  },
  { name: 'CONFIG', arity: -2, summary: 'GET name …', example: ['GET', 'save'], run: config },
  { name: 'COMMAND', arity: -1, summary: '[COUNT | LIST | INFO name … | DOCS name …]', example: ['COUNT'], run: command },
  { name: 'INFO', arity: -1, summary: '[section …]', example: [], run: info },
  {
    name: 'TIME',
    arity: 1,
    summary: 'the wall clock: no lease depends on it',
    example: [],
    run: session => {
      const wall = Math.floor(session.host.context.clock.wall())
      session.reply(to => writeValue(to, [String(Math.floor(wall / 1_000)), String((wall % 1_000) * 1_000)]))
    },
  },
]

function echo(session: RespSession): void {
  const bytes = Buffer.from(session.args.bytes(1))
  session.reply(to => to.bulk(bytes))
}

function hello(session: RespSession): void {
  const { args, host } = session
  const { guarded } = host.context
  const protocol = args.count > 1 ? args.number(1) : 0
  if (protocol !== 0 && protocol !== 2 && protocol !== 3) return session.reply(to => to.error('NOPROTO', 'unsupported protocol version'))
  let secret: string | undefined
  let name: string | undefined
  let witness: string | undefined
  let messages: number | undefined
  let beside: { readonly name: string; readonly proof: string } | undefined
  for (let i = 2; i < args.count; ) {
    if (args.is(i, 'AUTH') && i + 2 < args.count) {
      secret = text(session, i + 2, 'the key')
      i += 3
    } else if (args.is(i, 'SETNAME') && i + 1 < args.count) {
      name = text(session, i + 1, 'the name')
      i += 2
    } else if (args.is(i, 'BESIDE') && i + 2 < args.count) {
      beside = { name: text(session, i + 1, 'the name'), proof: text(session, i + 2, 'the proof') }
      i += 3
    } else if (args.is(i, 'WITNESS') && i + 1 < args.count) {
      witness = text(session, i + 1, 'the witness')
      i += 2
    } else if (args.is(i, 'MESSAGES') && i + 1 < args.count) {
      messages = args.number(i + 1) ?? 0
      i += 2
    } else return session.reply(to => to.error('ERR', 'syntax error in HELLO'))
  }
  if (secret !== undefined) identify(session, secret)
  else if (beside === undefined) guarded.access.admit(session.caller)
  if (messages !== undefined && messages !== MESSAGES_VERSION)
    throw otherMessages('this server', { client: messages, server: MESSAGES_VERSION })
  if (messages !== undefined) session.messages = messages
  if (name !== undefined) session.name = name
  if (beside !== undefined) {
    // The store is asked, and nothing that follows is executed before its answer.
    const greeting = identifyBeside(session, beside.name, beside.proof).then(async answer => ({
      ...(await checkWitness(session, witness)),
      answer,
    }))
    return session.replyBlocking(greeting, (to, checked) => greet(session, to, { protocol, witness, ...checked }))
  }
  session.replyLater(checkWitness(session, witness), (to, checked) => greet(session, to, { protocol, witness, ...checked }))
}

interface HelloReply {
  readonly protocol: number
  readonly witness: string | undefined
  readonly revision: number
  readonly continues: boolean
  /** The proof for a client that found this server in its store. */
  readonly answer?: string
}

function greet(session: RespSession, to: RespWriter, { protocol, witness, revision, continues, answer }: HelloReply): void {
  const { lessor } = session.host.context.guarded
  const { profile } = lessor
  // This reply and all after it use the new protocol. Replies to earlier commands use the old one.
  if (protocol !== 0) session.protocol = protocol as 2 | 3
  to.protocol = session.protocol
  writeValue(to, {
    ...{
      server: 'leasehold',
      version: REDIS_VERSION,
      proto: session.protocol,
      id: session.id,
      mode: 'standalone',
      role: 'master',
      modules: [],
    },
    ...{ messages: MESSAGES_VERSION, revision, profile: JSON.stringify(profile) },
    // Only for clients that keep witnesses.
    ...(witness !== undefined && { witness: lessor.witness ?? '', continues: continues ? 1 : 0 }),
    ...(answer !== undefined && { beside: answer }),
  })
}

async function checkWitness(
  session: RespSession,
  witness: string | undefined,
): Promise<{ readonly revision: number; readonly continues: boolean }> {
  const { guarded, log } = session.host.context
  if (witness !== undefined) session.sendsWitness = true
  const continues = !witness || (await guarded.continues(witness))
  if (!continues) log.warn({ peer: session.peer }, LOG_WENT_BACK)
  // Read after the check, which may have begun a new generation.
  const { revision } = await guarded.read(session.caller, { kind: 'summary' })
  return { revision, continues }
}

function auth(session: RespSession): void {
  const { count } = session.args
  if (count > 3) return session.reply(to => to.error('ERR', "wrong number of arguments for 'auth' command"))
  identify(session, text(session, count - 1, 'the key'))
  session.reply(to => to.simple('OK'))
}

function client(session: RespSession): void {
  const { args, name: current } = session
  switch (args.word(1)) {
    case 'ID':
      return session.reply(to => to.integer(session.id))
    case 'GETNAME':
      return session.reply(to => (current === '' ? to.null() : to.text(current)))
    case 'SETNAME': {
      const name = text(session, 2, 'the name')
      if (/[^!-~]/.test(name))
        return session.reply(to => to.error('ERR', 'Client names cannot contain spaces, newlines or special characters.'))
      session.name = name
      return session.reply(to => to.simple('OK'))
    }
    case 'SETINFO':
    case 'NO-EVICT':
    case 'NO-TOUCH':
      return session.reply(to => to.simple('OK'))
    case 'INFO':
    case 'LIST':
      // Lists only this connection: clients must not learn about others.
      return session.reply(to => to.text(`id=${session.id} addr=${session.peer} name=${current} db=0 resp=${session.protocol}\n`))
    default:
      return session.reply(to => to.error('ERR', 'unknown subcommand of CLIENT'))
  }
}

/** redis-benchmark reads the settings of durability. */
const CONFIG: Readonly<Record<string, string>> = { save: '', appendonly: 'yes', databases: '1', 'proto-max-bulk-len': String(4 << 20) }

function config(session: RespSession): void {
  const { args } = session
  if (!args.is(1, 'GET'))
    return session.reply(to => to.error('ERR', 'settings cannot be changed over RESP: use the configuration file of the server'))
  const found: Record<string, string> = {}
  for (let i = 2; i < args.count; i++) {
    const name = (args.text(i) ?? '').toLowerCase()
    if (Object.hasOwn(CONFIG, name)) found[name] = CONFIG[name]!
  }
  session.reply(to => writeValue(to, found))
}

/** Maximum names in one COMMAND. Its reply may be a hundred times as long as the names. */
const MAX_NAMES = 256

function command(session: RespSession): void {
  const { args } = session
  const known = session.host.commands
  const word = args.count === 1 ? 'INFO' : args.word(1)
  if (args.count - 2 > MAX_NAMES) return session.reply(to => to.error('LIMIT', `COMMAND accepts at most ${MAX_NAMES} names`))
  const named = args.count > 2 ? Array.from({ length: args.count - 2 }, (_, i) => args.word(i + 2)) : [...known.keys()]
  switch (word) {
    case 'COUNT':
      return session.reply(to => to.integer(known.size))
    case 'LIST':
      return session.reply(to =>
        writeValue(
          to,
          [...known.keys()].map(name => name.toLowerCase()),
        ),
      )
    case 'INFO':
      return session.reply(to => {
        to.array(named.length)
        for (const name of named) writeInfo(to, known.get(name))
      })
    case 'DOCS':
      return session.reply(to => {
        const documented = named.filter(name => known.has(name))
        to.map(documented.length)
        for (const name of documented) {
          to.text(name.toLowerCase())
          writeValue(to, { summary: known.get(name)!.summary, since: '0.1.0', group: name.startsWith('LEASE.') ? 'lease' : 'connection' })
        }
      })
    default:
      return session.reply(to => to.error('ERR', 'unknown subcommand of COMMAND'))
  }
}

function writeInfo(to: RespWriter, described: SessionCommand | undefined): void {
  if (described === undefined) return to.null()
  const { name, arity, names = [0, 0, 0], changes = false, open = false } = described
  writeValue(to, [name.toLowerCase(), arity, [changes ? 'write' : 'readonly', ...(open ? ['no_auth'] : [])], ...names, [], [], [], []])
}

function info(session: RespSession): void {
  const { guarded, connections, figures } = session.host.context
  const all = guarded.access.may(session.caller, 'read', '')
  session.replyLater(guarded.read(session.caller, { kind: 'summary' }), (to, { revision, value }) => {
    const lines = [
      ...['# Server', `redis_version:${REDIS_VERSION}`, 'server:leasehold', 'redis_mode:standalone', `process_id:${process.pid}`],
      ...(all ? ['# Clients', `connected_clients:${connections()}`, `blocked_clients:${guarded.waiting}`] : []),
      ...['# Persistence', 'loading:0', `store:${guarded.lessor.profile.store}`],
      ...['# Replication', 'role:master', 'connected_slaves:0'],
      ...['# Leases', `revision:${revision}`, ...Object.entries(value).map(([name, figure]) => `${name}:${Number(figure)}`)],
      ...(all ? Object.entries(figures()).map(([name, figure]) => `${name}:${figure}`) : []),
    ]
    to.text(`${lines.join('\r\n')}\r\n`)
  })
}
