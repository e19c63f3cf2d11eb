/** What every client of Redis says when it comes, while it stays and before it goes. Harmless, and answered as they expect it. */
import { MESSAGES_VERSION } from '../../wire/messages.ts'
import type { RespWriter } from '../../wire/resp/writer.ts'
import { LOG_WENT_BACK } from '../listener.ts'
import { type RespCommand, text } from './command.ts'
import { writeValue } from './replies.ts'
import type { RespSession } from './session.ts'

export const VERSION = '7.4.0'

export const CONNECTION_COMMANDS: readonly RespCommand[] = [
  { name: 'HELLO', arity: -1, open: true, summary: '[2 | 3 [AUTH user key] [SETNAME name] [WITNESS text]]', example: ['2'], run: hello },
  { name: 'AUTH', arity: -2, open: true, summary: '[user] key', example: ['nobody'], run: auth },
  {
    name: 'PING',
    arity: -1,
    open: true,
    summary: '[text]',
    example: [],
    run: session => {
      if (session.args.count === 1) return session.answer(to => to.raw('+PONG\r\n'))
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
      session.answer(to => to.simple('OK'))
      session.leave()
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
      // What was asked for before it is answered in the protocol it was asked in.
      session.answer(to => {
        session.protocol = 2
        to.protocol = 2
        to.simple('RESET')
      })
    },
  },
  {
    name: 'SELECT',
    arity: 2,
    summary: '0: there is one log',
    example: ['0'],
    run: session => {
      const known = session.args.number(1) === 0
      session.answer(to => (known ? to.simple('OK') : to.error('ERR', 'DB index is out of range')))
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
    summary: 'for people: nothing here decides by it',
    example: [],
    run: session => {
      const wall = Math.floor(session.door.context.clock.wall())
      session.answer(to => writeValue(to, [String(Math.floor(wall / 1_000)), String((wall % 1_000) * 1_000)]))
    },
  },
]

function echo(session: RespSession): void {
  const said = Buffer.from(session.args.bytes(1))
  session.answer(to => to.bulk(said))
}

function hello(session: RespSession): void {
  const { args, door } = session
  const { desk } = door.context
  const asked = args.count > 1 ? args.number(1) : 0
  if (asked !== 0 && asked !== 2 && asked !== 3) return session.answer(to => to.error('NOPROTO', 'unsupported protocol version'))
  let secret: string | undefined
  let name: string | undefined
  let witness: string | undefined
  for (let i = 2; i < args.count; ) {
    if (args.is(i, 'AUTH') && i + 2 < args.count) {
      secret = text(session, i + 2, 'the key')
      i += 3
    } else if (args.is(i, 'SETNAME') && i + 1 < args.count) {
      name = text(session, i + 1, 'the name')
      i += 2
    } else if (args.is(i, 'WITNESS') && i + 1 < args.count) {
      witness = text(session, i + 1, 'the witness')
      i += 2
    } else return session.answer(to => to.error('ERR', 'syntax error in HELLO'))
  }
  if (secret !== undefined) session.identify(secret)
  else desk.gate.admit(session.caller)
  if (name !== undefined) session.name = name
  const { profile } = desk.lessor
  // Said in the new protocol, and everything after it too; what was asked before it is answered in the old one.
  session.later(greeted(session, witness), (to, { revision, continues }) => {
    if (asked !== 0) session.protocol = asked
    to.protocol = session.protocol
    writeValue(to, {
      ...{
        server: 'leasehold',
        version: VERSION,
        proto: session.protocol,
        id: session.id,
        mode: 'standalone',
        role: 'master',
        modules: [],
      },
      ...{ messages: MESSAGES_VERSION, revision, profile: JSON.stringify(profile) },
      // Only for a client that keeps witnesses.
      ...(witness !== undefined && { witness: desk.witness ?? '', continues: continues ? 1 : 0 }),
    })
  })
}

async function greeted(
  session: RespSession,
  witness: string | undefined,
): Promise<{ readonly revision: number; readonly continues: boolean }> {
  const { desk, log } = session.door.context
  if (witness !== undefined) session.witnesses = true
  const continues = !witness || (await desk.continues(witness))
  if (!continues) log.warn({ peer: session.peer }, LOG_WENT_BACK)
  // Afterwards: a generation may have begun.
  const { revision } = await desk.read(session.caller, { kind: 'summary' })
  return { revision, continues }
}

function auth(session: RespSession): void {
  const { count } = session.args
  if (count > 3) return session.answer(to => to.error('ERR', "wrong number of arguments for 'auth' command"))
  session.identify(text(session, count - 1, 'the key'))
  session.answer(to => to.simple('OK'))
}

function client(session: RespSession): void {
  const { args, name: called } = session
  switch (args.word(1)) {
    case 'ID':
      return session.answer(to => to.integer(session.id))
    case 'GETNAME':
      return session.answer(to => (called === '' ? to.null() : to.text(called)))
    case 'SETNAME': {
      const name = text(session, 2, 'the name')
      if (/[^!-~]/.test(name))
        return session.answer(to => to.error('ERR', 'Client names cannot contain spaces, newlines or special characters.'))
      session.name = name
      return session.answer(to => to.simple('OK'))
    }
    case 'SETINFO':
    case 'NO-EVICT':
    case 'NO-TOUCH':
      return session.answer(to => to.simple('OK'))
    case 'INFO':
    case 'LIST':
      // Of itself alone: who else is here is nobody's business.
      return session.answer(to => to.text(`id=${session.id} addr=${session.peer} name=${called} db=0 resp=${session.protocol}\n`))
    default:
      return session.answer(to => to.error('ERR', 'unknown subcommand of CLIENT'))
  }
}

/** redis-benchmark asks whether what it measures is durable. */
const CONFIG: Readonly<Record<string, string>> = { save: '', appendonly: 'yes', databases: '1', 'proto-max-bulk-len': String(4 << 20) }

function config(session: RespSession): void {
  const { args } = session
  if (!args.is(1, 'GET')) return session.answer(to => to.error('ERR', 'settings are in the configuration file of this server'))
  const found: Record<string, string> = {}
  for (let i = 2; i < args.count; i++) {
    const name = (args.text(i) ?? '').toLowerCase()
    if (Object.hasOwn(CONFIG, name)) found[name] = CONFIG[name]!
  }
  session.answer(to => writeValue(to, found))
}

/** Names in one COMMAND. An answer may be a hundred times as long as a name. */
const MAX_NAMED = 256

function command(session: RespSession): void {
  const { args } = session
  const known = session.door.commands
  const word = args.count === 1 ? 'INFO' : args.word(1)
  if (args.count - 2 > MAX_NAMED) return session.answer(to => to.error('LIMIT', `at most ${MAX_NAMED} commands can be named at once`))
  const named = args.count > 2 ? Array.from({ length: args.count - 2 }, (_, i) => args.word(i + 2)) : [...known.keys()]
  switch (word) {
    case 'COUNT':
      return session.answer(to => to.integer(known.size))
    case 'LIST':
      return session.answer(to =>
        writeValue(
          to,
          [...known.keys()].map(name => name.toLowerCase()),
        ),
      )
    case 'INFO':
      return session.answer(to => {
        to.array(named.length)
        for (const name of named) writeInfo(to, known.get(name))
      })
    case 'DOCS':
      return session.answer(to => {
        const documented = named.filter(name => known.has(name))
        to.map(documented.length)
        for (const name of documented) {
          to.text(name.toLowerCase())
          writeValue(to, { summary: known.get(name)!.summary, since: '0.1.0', group: name.startsWith('LEASE.') ? 'lease' : 'connection' })
        }
      })
    default:
      return session.answer(to => to.error('ERR', 'unknown subcommand of COMMAND'))
  }
}

function writeInfo(to: RespWriter, known: RespCommand | undefined): void {
  if (known === undefined) return to.null()
  const { name, arity, names = [0, 0, 0], changes = false, open = false } = known
  writeValue(to, [name.toLowerCase(), arity, [changes ? 'write' : 'readonly', ...(open ? ['no_auth'] : [])], ...names, [], [], [], []])
}

function info(session: RespSession): void {
  const { desk, connections, figures } = session.door.context
  const all = desk.gate.may(session.caller, 'read', '')
  session.later(desk.read(session.caller, { kind: 'summary' }), (to, { revision, value }) => {
    const lines = [
      ...['# Server', `redis_version:${VERSION}`, 'server:leasehold', 'redis_mode:standalone', `process_id:${process.pid}`],
      ...(all ? ['# Clients', `connected_clients:${connections()}`, `blocked_clients:${desk.waiting}`] : []),
      ...['# Persistence', 'loading:0', `store:${desk.lessor.profile.store}`],
      ...['# Replication', 'role:master', 'connected_slaves:0'],
      ...['# Leases', `revision:${revision}`, ...Object.entries(value).map(([name, figure]) => `${name}:${Number(figure)}`)],
      ...(all ? Object.entries(figures()).map(([name, figure]) => `${name}:${figure}`) : []),
    ]
    to.text(`${lines.join('\r\n')}\r\n`)
  })
}
