/** RESP commands that are commands of the kernel in other words: their arguments and options follow from the command table. */
import { operationNamed } from '../../kernel/codec/digest.ts'
import type { Fields } from '../../kernel/codec/field-type.ts'
import type { Command } from '../../kernel/command.ts'
import { COMMAND_TABLE, type CommandTable } from '../../kernel/command-table.ts'
import { invalid, type RespCommand, readOptions } from './command.ts'
import { fieldOptions, valueAt, wordOf } from './field-options.ts'
import type { RespSession } from './session.ts'

type FieldName<K extends Command['kind']> = string & keyof CommandTable[K]['fields']
type WriteReply = Parameters<RespSession['propose']>[1]

interface Description<K extends Command['kind']> extends Omit<RespCommand, 'arity' | 'summary' | 'changes' | 'run'> {
  readonly kind: K
  /** Fields that follow the name of the command, each by its place. */
  readonly args: readonly FieldName<K>[]
  /** Fields that follow in any order, each after its word. `OP` may follow every command. */
  readonly options?: readonly FieldName<K>[]
  readonly reply: WriteReply
  /** Describes the reply, where it is not OK. */
  readonly answers?: string
}

export function kernelCommand<K extends Command['kind']>(description: Description<K>): RespCommand {
  const { kind, args, options = [], reply, answers, ...row } = description
  const fields = COMMAND_TABLE[kind].fields as Fields
  const { usage, needed, propose } = kernelOptions(kind, options, reply)
  const all = [...args.map(arg => (fields[arg]!.type.surface === 'id' ? 'id' : arg)), usage].join(' ')
  return {
    ...row,
    arity: -(1 + args.length + 2 * needed.length),
    summary: answers === undefined ? all : `${all}: ${answers}`,
    changes: true,
    run(session) {
      const command: Record<string, unknown> = { kind }
      for (let i = 0; i < args.length; i++) command[args[i]!] = valueAt(session, i + 1, `a ${args[i]}`, fields[args[i]!]!.type.surface)
      propose(session, args.length + 1, command)
    },
  }
}

interface KernelOptions {
  readonly usage: string
  readonly needed: readonly string[]
  /** Proposes `command` with the options from `from` on. */
  propose(session: RespSession, from: number, command: Readonly<Record<string, unknown>>): void
}

export function kernelOptions<K extends Command['kind']>(kind: K, options: readonly FieldName<K>[], reply: WriteReply): KernelOptions {
  const fields = COMMAND_TABLE[kind].fields as Fields
  const needed = options.filter(option => fields[option]!.presence === 'needed')
  const { words, usage } = fieldOptions(fields, options as readonly string[])
  return {
    usage,
    needed,
    propose(session, from, command) {
      if (session.args.count === from) return session.propose(command as unknown as Command, reply)
      const { op, ...given } = readOptions(session, from, words, {})
      for (const option of needed)
        if (given[option] === undefined) throw invalid(`${wordOf(option, fields[option]!)} is missing: use ${usage}`)
      const proposed = { ...command, ...given } as unknown as Command
      session.propose(proposed, reply, op === undefined ? undefined : { op: operationNamed(op, proposed) })
    },
  }
}
