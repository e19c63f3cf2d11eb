// Appends to a file and saves snapshots, and dies by SIGKILL at one of its calls to the disk: `node dying-writer.mjs '{"path", "own", "step", "when", "count"}'`.
//
// `step` names the call ("rename segment"; "any": each one), `count` says at which of them, and `when` whether before it, during it or after it. Without a
// `step` it ends by itself after `MAX_RECORDS`. It prints one line for each record that it begins to append, and one for each that was acknowledged.
//
// A snapshot has the hash of all records before it, so that what was trimmed can be checked as well.
import fs, { writeSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { basename } from 'node:path'
import { bytesOf, hashAfter } from './killed-records.mjs'

const MAX_RECORDS = 60
/** Records between two snapshots. */
const SNAPSHOT = 9

const { path, own, step, when, count = 1, name = String(process.pid) } = JSON.parse(process.argv[2])
const kinds = new Map()
let left = count

/** Returns what a call is for: a segment or a snapshot that is being made, one that has its name, the folder, PATH-head. Undefined: no call of the log. */
function kindOf(file) {
  const known = basename(file)
  if (known.startsWith('segment-')) return 'segment'
  if (known.startsWith('snapshot-')) return 'snapshot'
  if (known.endsWith('.snapshot')) return 'old snapshot'
  if (known.endsWith('.log')) return 'log'
  if (known.endsWith('-log')) return 'folder'
  if (known.endsWith('-head')) return 'head'
  return undefined
}

function die() {
  process.kill(process.pid, 'SIGKILL')
}

/** Replaces an asynchronous call of node:fs by one that may be the last of this process. */
function mayDie(call, describe, done = () => {}) {
  const real = fs[call]
  fs[call] = (...words) => {
    const answer = words.pop()
    const found = describe(words)
    const isLast = found !== undefined && (step === found || step === 'any') && --left === 0
    if (isLast && when === 'before') die()
    real(...words, (error, ...values) => {
      if (isLast) die()
      if (!error) done(words, values)
      answer(error, ...values)
    })
    if (isLast && when === 'during') die()
  }
}

const named = (verb, kind) => kind && `${verb} ${kind}`
mayDie(
  'open',
  ([file, flags]) => (flags & fs.constants.O_CREAT ? named('create', kindOf(file)) : undefined),
  ([file], [number]) => kinds.set(number, kindOf(file)),
)
mayDie('write', ([number]) => named('write', kinds.get(number)))
mayDie('fsync', ([number]) => named('sync', kinds.get(number)))
mayDie('rename', ([file]) => named('rename', kindOf(file)))
mayDie('unlink', ([file]) => named('remove', kindOf(file)))
const { openSync } = fs
fs.openSync = (file, ...words) => {
  const number = openSync(file, ...words)
  kinds.set(number, kindOf(file))
  return number
}
syncBuiltinESMExports()

const { FileStore } = await import('../../../dist/store/file/file.js')

function say(...words) {
  writeSync(1, `${words.join(' ')}\n`)
}

const store = new FileStore({ path, timeout: 120_000, ...(own && { own: { name: 'owner' } }) })
const { snapshot } = await store.open()
let position = { index: 0, nonce: 0n }
let hash = ''
let saved = 0

async function load({ position: at, bytes }) {
  const chunks = []
  try {
    for await (const chunk of bytes) chunks.push(chunk)
  } catch (error) {
    if (!/two newer snapshots/.test(error.message)) throw error
    return load(await store.newest()) // another process has saved them meanwhile
  }
  hash = Buffer.concat(chunks).toString()
  position = at
  saved = at.index
}

/** Reads what other processes have appended. */
async function catchUp() {
  for (;;) {
    const { kind, records } = await store.read(position)
    if (kind === 'trimmed') {
      await load(await store.newest())
      continue
    }
    if (kind !== 'records') throw new Error(kind)
    if (records.length === 0) return
    for (const record of records) {
      hash = hashAfter(hash, record.bytes)
      position = record.position
    }
  }
}

if (snapshot) await load(snapshot)
await catchUp()
say('opened', position.index)
for (let i = 0; i < MAX_RECORDS; i++) {
  say('begin', `${name}/${i}`)
  const answer = await store.append(bytesOf(`${name}/${i}`), position)
  if (answer.kind !== 'appended' && answer.kind !== 'behind') throw new Error(answer.kind)
  say('acknowledged', `${name}/${i}`, answer.position.index)
  await catchUp()
  if (position.index - saved >= SNAPSHOT) {
    const [at, bytes] = [position, Buffer.from(hash)]
    await store.snapshot(at, [bytes])
    saved = at.index
    say('saved', at.index)
  }
}
await store[Symbol.asyncDispose]()
