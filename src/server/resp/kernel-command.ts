/** RESP commands that are commands of the kernel in other words: their arguments and options follow from the command table. */
import { operationNamed } from '../../kernel/codec/digest.ts'
import type { Fields } from '../../kernel/codec/field-type.ts'
import type { Command } from '../../kernel/command.ts'
import { COMMAND_TABLE, type CommandTable } from '../../kernel/command-table.ts'
import { duration, invalid, opText, type RespCommand, readOptions, text, type Words, whole } from './command.ts'
import type { RespSession } from './session.ts'

type FieldName<K extends Command['kind']> = string & keyof CommandTable[K]['fields']
type WriteReply = Parameters<RespSession['propose']>[1]

interface Description<K extends Command['kind']> extends Omit<RespCommand, 'arity' | 'summary' | 'changes' | 'run'> {
  readonly kind: K
  /** Fields that follow the name of the command, each by its place. */
  readonly args: readonly FieldName<K>[]
  /** Fields that follow in any order, each after its name in upper case. `OP` may follow every command. */
  readonly options?: readonly FieldName<K>[]
  readonly reply: WriteReply
  /** What the reply is, where it is not OK. */
  readonly answers?: string
}

export function kernelCommand<K extends Command['kind']>(description: Description<K>): RespCommand {
  const { kind, args, options = [], reply, answers, ...row } = description
  const fields = COMMAND_TABLE[kind].fields as Fields
  const needed = options.filter(option => fields[option]!.presence === 'needed')
  const usage = [...args.map(arg => placeholder(arg, fields)), ...options.map(option => usageOf(option, fields)), '[OP id]'].join(' ')
  return {
    ...row,
    arity: -(1 + args.length + 2 * needed.length),
    summary: answers === undefined ? usage : `${usage}: ${answers}`,
    changes: true,
    run(session) {
      const command: Record<string, unknown> = { kind }
      for (let i = 0; i < args.length; i++) command[args[i]!] = valueAt(session, i + 1, `a ${args[i]}`, fields[args[i]!]!.type.surface)
      proposeWithOptions(session, args.length + 1, kind, options, command, reply)
    },
  }
}

function placeholder(name: string, fields: Fields): string {
  return fields[name]!.type.surface === 'id' ? 'id' : name
}

const PLACEHOLDERS: Readonly<Record<string, string>> = {
  flag: '',
  duration: ' ms',
  id: ' id',
  count: ' n',
  integer: ' n',
  name: ' name',
  text: ' text',
}

function usageOf(name: string, fields: Fields): string {
  const { type, presence } = fields[name]!
  const usage = `${name.toUpperCase()}${PLACEHOLDERS[type.surface]}`
  return presence === 'needed' ? usage : `[${usage}]`
}

function valueAt(session: RespSession, at: number, what: string, surface: string): string | number {
  if (surface === 'duration') return duration(session, at, what)
  return surface === 'name' || surface === 'text' ? text(session, at, what) : whole(session, at, what)
}

/** The words of options that set fields of `command`. */
export function optionWords<K extends Command['kind']>(
  session: RespSession,
  kind: K,
  options: readonly FieldName<K>[],
  command: { [field: string]: unknown },
): Words {
  const words: Record<string, (at: number) => number> = {}
  const fields = COMMAND_TABLE[kind].fields as Fields
  for (const option of options) {
    const word = option.toUpperCase()
    const { surface } = fields[option]!.type
    words[word] = at => {
      command[option] = surface === 'flag' ? true : valueAt(session, at, word, surface)
      return surface === 'flag' ? 0 : 1
    }
  }
  return words
}

/** Proposes `command` with the options from `from` on. */
export function proposeWithOptions<K extends Command['kind']>(
  session: RespSession,
  from: number,
  kind: K,
  options: readonly FieldName<K>[],
  command: Record<string, unknown>,
  reply: WriteReply,
): void {
  if (session.args.count === from) return session.propose(command as unknown as Command, reply)
  let named: string | undefined
  readOptions(session, from, {
    ...optionWords(session, kind, options, command),
    OP: at => {
      named = opText(session, at)
      return 1
    },
  })
  const fields = COMMAND_TABLE[kind].fields as Fields
  for (const option of options)
    if (fields[option]!.presence === 'needed' && command[option] === undefined) throw invalid(`${option.toUpperCase()} is missing`)
  const proposed = command as unknown as Command
  session.propose(proposed, reply, named === undefined ? undefined : { op: operationNamed(named, proposed) })
}
