/** Programs read codes, reasons and facts. No code of ours looks for words in a message: the words may change in any version. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import type { FailureReason } from '../../src/errors.ts'
import { REASONS } from '../../src/kernel/reason.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))

/** A message that is searched, matched, compared or taken apart. */
const LOOKS_AT_MESSAGE = [
  /\bmessage\??\.(includes|startsWith|endsWith|match|matchAll|search|indexOf|lastIndexOf|split|replace|replaceAll)\(/,
  /\.(test|exec)\(\s*(\w+[.!?]*\.)?(message|why|text\b.*message)\s*\)/,
  /\.(test|exec)\([^()]*\.message\b/,
  /\bmessage\s*(===|!==)\s*[`'"]/,
  /[`'"]\s*(===|!==)\s*\w+(\.\w+)*\.message\b/,
  /\bcase\s+\w+\.message\b|switch\s*\([^)]*\.message\)/,
]

/** Where a message is that of another program, or a message that is no error. Each exception gives its reason. */
const exceptions: readonly { readonly file: string; readonly text: string; readonly reason: string }[] = [
  { file: 'src/store/file/errors.ts', text: 'pattern.test(message)', reason: 'messages of SQLite' },
  { file: 'src/store/redis/errors.ts', text: 'message', reason: 'messages of Redis' },
  { file: 'src/store/etcd/errors.ts', text: '.test(message)', reason: 'messages of etcd' },
  { file: 'src/store/postgres/errors.ts', text: "cause.message !== ''", reason: 'whether the driver gave a message at all' },
  { file: 'src/wire/http/connection.ts', text: "cause.message !== ''", reason: 'whether fetch gave a message at all' },
  { file: 'src/wire/http/connection.ts', text: 'cause.message ??', reason: 'white space in a message of OpenSSL' },
  { file: 'src/wire/resp/connection.ts', text: 'why!.message.replace(/\\s+/g', reason: 'white space in a message of OpenSSL' },
  { file: 'src/server/resp/replies.ts', text: "message.replaceAll('\\t', ' ')", reason: 'a tab ends the message' },
  { file: 'src/wire/resp/writer.ts', text: 'message.replace(/[\\r\\n\\0]/g', reason: 'a line break ends the message' },
  { file: 'src/face/redis/script.ts', text: '.exec(message)', reason: 'what a script of a client passes to error()' },
  { file: 'sim/main.ts', text: ".message.split('.')[0]", reason: 'a message of node:util about options' },
  { file: 'sim/heartbeat-thread.ts', text: 'message ===', reason: 'a message between threads' },
  { file: 'src/connect/heartbeat-worker.ts', text: 'message ===', reason: 'a message between threads' },
  { file: 'bench/server-child.mjs', text: 'message ===', reason: 'a message between processes' },
]

const files = ['src', 'sim', 'bench', 'scripts'].flatMap(folder =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter(name => /\.(ts|tsx|mjs)$/.test(name) && !name.includes('node_modules'))
    .map(name => join(folder, name)),
)

function found(file: string, text: string): readonly string[] {
  return text
    .split('\n')
    .map(line => line.trim().replaceAll(/typeof [\w.]+ (===|!==) 'string'/g, ''))
    .filter(line => !/^(\/\/|\*|\/\*)/.test(line) && LOOKS_AT_MESSAGE.some(pattern => pattern.test(line)))
    .filter(line => !exceptions.some(exception => exception.file === file && line.includes(exception.text)))
    .map(line => `${file}: ${line}`)
}

test('no code recognises an error by its text', () => {
  expect(files.flatMap(file => found(file, readFileSync(join(root, file), 'utf8')))).toEqual([])
})

test('the ways in which code did recognise errors by their text would be noticed', () => {
  const lines = [
    "if (message.includes('does not speak TLS')) return undefined",
    'return /requires TLS|does not speak TLS/.test(message)',
    "const changed = error.reason === 'Conflict' && error.message.endsWith(MODIFIED)",
    "if (reply.message.includes('syntax error in HELLO')) {",
    "new LeaseError(code, message.replace('. Restore it', '. It was left as it is. Restore it'))",
    "if (error.message === 'the store was closed') return",
    'const [, right] = /use (https?)/i.exec(error.message) ?? []',
  ]
  for (const line of lines) expect(found('src/x.ts', line), line).toHaveLength(1)
})

test('every exception is still needed', () => {
  for (const { file, text } of exceptions) expect(readFileSync(join(root, file), 'utf8'), file).toContain(text)
})

test('no reason of a failure is also a reason of a refusal', () => {
  const source = readFileSync(join(root, 'src/errors.ts'), 'utf8')
  const body = source.slice(source.indexOf('export interface FactsByFailure'), source.indexOf('export type FailureReason'))
  const failures = [...body.matchAll(/^ {2}readonly '?([a-z-]+)'?:/gm)].map(([, name]) => name as FailureReason)
  expect(failures.length).toBeGreaterThan(40)
  expect(failures.filter(name => Object.hasOwn(REASONS, name))).toEqual([])
})
