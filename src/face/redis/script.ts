/**
 * Runs a lock script. What it does decides, not how it is written: the script is run as Lua, its reads are answered from locks that were looked up
 * before, and its writes are collected and carried out together at its end. If another client was faster, the script is run again on what is there now.
 */
import { RespFailure, type RespReply } from '../face.ts'
import { type Block, type Expression, LuaError, type LuaStatement, parseLua } from './lua.ts'

type LuaTable = LuaValue[]
export type LuaValue = string | number | boolean | undefined | LuaTable | { readonly status: string } | { readonly failure: string }

/** The commands that a script may call. */
export interface ScriptCommands {
  call(name: string, args: readonly string[]): LuaValue
}

/** A lock script takes a few dozen steps. An item that is copied or answered is one, too. */
const MAX_STEPS = 10_000
/** Bytes of texts that a script makes, compares, reads as numbers, passes to commands and answers, counted as characters. */
const MAX_BYTES = 1 << 20
/** Lists in lists of an answer. */
const MAX_ANSWER_DEPTH = 16

const RETURN = Symbol('return')
interface Returned {
  readonly [RETURN]: LuaValue
}

/** A script that was read once, and can be run many times. */
export class LockScript {
  readonly #block: Block

  /** Throws LuaError. */
  constructor(source: string) {
    this.#block = parseLua(source)
  }

  /** The answer of the script. Throws LuaError. */
  run(keys: readonly string[], args: readonly string[], commands: ScriptCommands): RespReply {
    const run = new ScriptRun(commands)
    const scope = new ScriptScope(undefined)
    scope.declare('KEYS', [...keys])
    scope.declare('ARGV', [...args])
    const returned = run.block(this.#block, scope)
    return run.answer(returned?.[RETURN])
  }
}

class ScriptScope {
  readonly #values = new Map<string, LuaValue>()
  readonly #outer: ScriptScope | undefined
  /** A look-up may have to go through this many scopes. */
  readonly depth: number

  constructor(outer: ScriptScope | undefined) {
    this.#outer = outer
    this.depth = outer === undefined ? 0 : outer.depth + 1
  }

  declare(name: string, value: LuaValue): void {
    this.#values.set(name, value)
  }

  get(name: string): LuaValue {
    if (this.#values.has(name)) return this.#values.get(name)
    return this.#outer?.get(name)
  }

  /** A name that was not declared is a global of the script. */
  set(name: string, value: LuaValue): void {
    if (this.#values.has(name) || this.#outer === undefined) this.#values.set(name, value)
    else this.#outer.set(name, value)
  }
}

class ScriptRun {
  readonly #commands: ScriptCommands
  #steps = 0
  #bytes = 0

  constructor(commands: ScriptCommands) {
    this.#commands = commands
  }

  block(block: Block, outer: ScriptScope): Returned | undefined {
    const scope = new ScriptScope(outer)
    for (const statement of block) {
      const returned = this.#statement(statement, scope)
      if (returned !== undefined) return returned
    }
    return undefined
  }

  /** Counts before the work is done: a text that would be too long is not made. */
  #step(steps = 1): void {
    this.#steps += steps
    if (this.#steps > MAX_STEPS) throw new LuaError(`it takes more than ${MAX_STEPS} steps`)
  }

  #count(bytes: number): void {
    this.#bytes += bytes
    if (this.#bytes > MAX_BYTES) throw new LuaError(`it works on more than ${MAX_BYTES} bytes of text`)
  }

  /**
   * As Redis turns Lua into an answer: true is 1, false and nil are null, numbers lose their fraction. A list that is in the answer several times is written each
   * time, so each time counts.
   */
  answer(value: LuaValue, depth = 0): RespReply {
    this.#step()
    if (value === undefined || value === false) return null
    if (value === true) return 1
    if (typeof value === 'number') return Math.trunc(value)
    if (typeof value === 'string') {
      this.#count(value.length)
      return value
    }
    if (Array.isArray(value)) {
      if (depth === MAX_ANSWER_DEPTH) throw new LuaError(`it answers lists that are nested deeper than ${MAX_ANSWER_DEPTH}`)
      return value.map(item => this.answer(item, depth + 1))
    }
    this.#count('status' in value ? value.status.length : value.failure.length)
    return 'status' in value ? value : { error: new RespFailure(...splitError(value.failure)) }
  }

  #number(value: LuaValue): number {
    if (typeof value === 'string') this.#count(value.length)
    const found = typeof value === 'string' && value.trim() !== '' ? Number(value) : value
    if (typeof found !== 'number' || Number.isNaN(found)) throw new LuaError('a number is expected')
    return found
  }

  #statement(statement: LuaStatement, scope: ScriptScope): Returned | undefined {
    this.#step()
    switch (statement.kind) {
      case 'local':
      case 'assign': {
        const values = this.#all(statement.values, scope)
        for (const [i, name] of statement.names.entries())
          if (statement.kind === 'local') scope.declare(name, values[i])
          else {
            this.#step(scope.depth)
            scope.set(name, values[i])
          }
        return undefined
      }
      case 'set': {
        const [table, at, value] = this.#all([statement.table, statement.at, statement.value], scope)
        if (!Array.isArray(table) || typeof at !== 'number' || at < 1 || at > table.length + 1) throw new LuaError('a table is a list here')
        table[at - 1] = value
        return undefined
      }
      case 'if':
        for (const { when, body } of statement.branches)
          if (when === undefined || truth(this.value(when, scope))) return this.block(body, scope)
        return undefined
      case 'each': {
        const list = this.value(statement.of, scope)
        if (!Array.isArray(list)) throw new LuaError('ipairs goes over a list')
        for (const [i, item] of list.entries()) {
          this.#step()
          const inner = new ScriptScope(scope)
          for (const [n, name] of statement.names.entries()) inner.declare(name, n === 0 ? i + 1 : item)
          const returned = this.block(statement.body, inner)
          if (returned !== undefined) return returned
        }
        return undefined
      }
      case 'count': {
        const [from, to] = this.#all([statement.from, statement.to], scope).map(each => this.#number(each))
        for (let i = from!; i <= to!; i++) {
          this.#step()
          const inner = new ScriptScope(scope)
          inner.declare(statement.name, i)
          const returned = this.block(statement.body, inner)
          if (returned !== undefined) return returned
        }
        return undefined
      }
      case 'do':
        return this.block(statement.body, scope)
      case 'return':
        return { [RETURN]: statement.value === undefined ? undefined : this.value(statement.value, scope) }
      case 'call':
        this.value(statement.call, scope)
        return undefined
    }
  }

  /** The last of several may be a call that gives several values. */
  #all(expressions: readonly Expression[], scope: ScriptScope): LuaValue[] {
    const values: LuaValue[] = []
    for (const [i, expression] of expressions.entries()) {
      const value = this.value(expression, scope)
      const isSpread = expression.kind === 'call' && /^(table\.)?unpack$/.test(expression.name)
      if (isSpread && i === expressions.length - 1 && Array.isArray(value)) {
        this.#step(value.length)
        values.push(...value)
      } else values.push(value)
    }
    return values
  }

  value(expression: Expression, scope: ScriptScope): LuaValue {
    this.#step()
    switch (expression.kind) {
      case 'value':
        return expression.value
      case 'name':
        this.#step(scope.depth)
        return scope.get(expression.name)
      case 'index': {
        const [of, at] = this.#all([expression.of, expression.at], scope)
        if (Array.isArray(of)) return typeof at === 'number' ? of[at - 1] : undefined
        if (typeof of === 'object' && 'status' in of && at === 'ok') return of.status
        throw new LuaError(typeof at === 'string' ? `only a list has a place ${at.slice(0, 40)}` : 'only a list has places')
      }
      case 'table':
        return this.#all(expression.items, scope)
      case 'unary': {
        const of = this.value(expression.of, scope)
        if (expression.operator === 'not') return !truth(of)
        if (expression.operator === '-') return -this.#number(of)
        if (Array.isArray(of) || typeof of === 'string') return of.length
        throw new LuaError('only a list or a text has a length')
      }
      case 'binary':
        return this.#binary(expression, scope)
      case 'call':
        return this.#call(expression.name, this.#all(expression.args, scope))
    }
  }

  #binary({ operator, left, right }: Extract<Expression, { readonly kind: 'binary' }>, scope: ScriptScope): LuaValue {
    const a = this.value(left, scope)
    if (operator === 'and') return truth(a) ? this.value(right, scope) : a
    if (operator === 'or') return truth(a) ? a : this.value(right, scope)
    const b = this.value(right, scope)
    switch (operator) {
      case '==':
        return this.#isEqual(a, b)
      case '~=':
        return !this.#isEqual(a, b)
      case '..':
        return this.#joined(text(a), text(b))
      case '<':
        return this.#number(a) < this.#number(b)
      case '>':
        return this.#number(a) > this.#number(b)
      case '<=':
        return this.#number(a) <= this.#number(b)
      case '>=':
        return this.#number(a) >= this.#number(b)
      case '+':
        return this.#number(a) + this.#number(b)
      case '-':
        return this.#number(a) - this.#number(b)
      case '*':
        return this.#number(a) * this.#number(b)
      case '/':
        return this.#number(a) / this.#number(b)
      default:
        return this.#number(a) % this.#number(b)
    }
  }

  #isEqual(a: LuaValue, b: LuaValue): boolean {
    if (typeof a === 'string' && typeof b === 'string') this.#count(Math.min(a.length, b.length))
    return a === b
  }

  #joined(a: string, b: string): string {
    this.#count(a.length + b.length)
    return a + b
  }

  #call(name: string, args: readonly LuaValue[]): LuaValue {
    switch (name) {
      case 'redis.call':
      case 'redis.pcall': {
        const [command, ...rest] = args.map(text)
        if (command === undefined) throw new LuaError('redis.call needs a command')
        this.#count(rest.reduce((sum, each) => sum + each.length, command.length))
        const value = this.#commands.call(command.toUpperCase(), rest)
        if (typeof value === 'string') this.#count(value.length)
        return value
      }
      case 'redis.status_reply':
        return { status: text(args[0]) }
      case 'redis.error_reply':
        return { failure: text(args[0]) }
      case 'redis.log':
      case 'redis.replicate_commands':
      case 'redis.set_repl':
        return undefined
      case 'tonumber': {
        const [given] = args
        if (typeof given === 'string') this.#count(given.length)
        const found = typeof given === 'string' && given.trim() !== '' ? Number(given) : given
        return typeof found === 'number' && !Number.isNaN(found) ? found : undefined
      }
      case 'tostring':
        return args[0] === undefined ? 'nil' : typeof args[0] === 'boolean' ? String(args[0]) : text(args[0])
      case 'type':
        return args[0] === undefined ? 'nil' : typeof args[0] === 'object' ? 'table' : typeof args[0]
      case 'unpack':
      case 'table.unpack':
        return args[0]
      case 'table.insert': {
        const [list, item] = args
        if (!Array.isArray(list) || args.length !== 2) throw new LuaError('table.insert appends to a list')
        list.push(item)
        return undefined
      }
      case 'string.sub': {
        const whole = text(args[0])
        this.#count(whole.length)
        const [from, to = -1] = args.slice(1).map(each => this.#number(each))
        // Places count from 1, and from the end if they are negative. Both ends belong to it.
        const at = (place: number) => (place < 0 ? whole.length + place + 1 : place)
        return whole.slice(Math.max(0, at(from ?? 1) - 1), Math.max(0, at(to)))
      }
      case 'math.floor':
        return Math.floor(this.#number(args[0]))
      case 'math.max':
        return Math.max(...args.map(each => this.#number(each)))
      case 'math.min':
        return Math.min(...args.map(each => this.#number(each)))
      case 'string.format':
        if (args[0] === '%d' || args[0] === '%s' || args[0] === '%.0f') return text(args[1])
        throw new LuaError('string.format is understood for one number only')
      default:
        throw new LuaError(`it calls ${name.slice(0, 40)}`)
    }
  }
}

function truth(value: LuaValue): boolean {
  return value !== undefined && value !== false
}

function text(value: LuaValue): string {
  if (typeof value === 'string') return value
  if (typeof value === 'number') return String(value)
  throw new LuaError('a text is expected')
}

function splitError(message: string): [string, string] {
  const [, code = 'ERR', rest = message] = /^([A-Z][A-Z0-9_]*) ([\s\S]*)$/.exec(message) ?? []
  return [code, rest]
}
