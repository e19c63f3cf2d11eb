// A log in a file whose processes (dying-writer.mjs) are killed at their calls to the disk, and what they were told. After each death the log is opened and
// compared with it: every acknowledged record is there, at its index, and no record is there that no process began to append, or twice.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { FileStore } from '../../../dist/store/file/file.js'
import { bytesOf, hashAfter } from './killed-records.mjs'

const writer = fileURLToPath(new URL('dying-writer.mjs', import.meta.url))

/** The calls to the disk at which a process is killed, in the order in which a log makes them. */
export const STEPS = [
  'create segment',
  'write segment',
  'sync segment',
  'rename segment',
  'sync folder',
  'write log',
  'write head',
  'create snapshot',
  'write snapshot',
  'sync snapshot',
  'rename snapshot',
  'remove old snapshot',
  'remove log',
]
export const MOMENTS = ['before', 'during', 'after']

export class KilledLog {
  #folder = mkdtempSync(join(tmpdir(), 'leasehold-killed-'))
  #path = join(this.#folder, 'log.db')
  #begun = new Set()
  /** The record at each index, as acknowledged or read. */
  #records = new Map()
  /** The index of each record that was read. */
  #seen = new Map()
  #position = { index: 0, nonce: 0n }
  /** The hash of all records up to each index. */
  #hashes = new Map([[0, '']])
  #lives = 0
  /** The log was trimmed this many times before all its records were known, so that the hash in a snapshot could not be checked. */
  skipped = 0

  get records() {
    return this.#records.size
  }

  /** Starts one process for each plan at the same time, and waits until all have ended. Returns how many were killed. */
  async run(...plans) {
    const ends = await Promise.all(plans.map(plan => this.#life(plan)))
    return ends.filter(signal => signal === 'SIGKILL').length
  }

  async #life(plan) {
    const name = `life-${++this.#lives}`
    const child = spawn(process.execPath, [writer, JSON.stringify({ path: this.#path, name, ...plan })], {
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let [output, errors] = ['', '']
    child.stdout.setEncoding('utf8').on('data', text => (output += text))
    child.stderr.setEncoding('utf8').on('data', text => (errors += text))
    const [code, signal] = await once(child, 'close')
    assert(signal === 'SIGKILL' || code === 0, `a process failed: ${JSON.stringify(plan)} ${errors}`)
    for (const line of output.split('\n')) {
      const [what, record, index] = line.split(' ')
      if (what === 'begin') this.#begun.add(record)
      if (what === 'acknowledged') this.#know(Number(index), record)
    }
    return signal
  }

  #know(index, record) {
    assert.equal(this.#records.get(index) ?? record, record, `two records at ${index}`)
    this.#records.set(index, record)
  }

  /** Opens the log and compares. */
  async check() {
    const store = new FileStore({ path: this.#path })
    try {
      const { head, snapshot } = await store.open()
      const hash = snapshot && (await text(snapshot.bytes))
      let read = await store.read(this.#position)
      if (read.kind === 'trimmed') {
        this.#skipTo(snapshot.position, hash)
        read = await store.read(this.#position)
      }
      for (; read.records.length > 0; read = await store.read(this.#position)) for (const record of read.records) this.#follow(record)
      assert.equal(this.#position.index, head.index)
      assert(Math.max(0, ...this.#records.keys()) <= head.index, 'an acknowledged record is missing')
      if (snapshot) assert.equal(hash, this.#hashes.get(snapshot.position.index) ?? hash, 'the snapshot is of other records')
    } finally {
      await store[Symbol.asyncDispose]()
    }
  }

  /** Records before a snapshot were trimmed before they could be read here. Those of processes that were killed may not be known. */
  #skipTo(position, hash) {
    let [{ index }, expected] = [this.#position, this.#hashes.get(this.#position.index)]
    while (index < position.index && this.#records.has(index + 1)) expected = hashAfter(expected, bytesOf(this.#records.get(++index)))
    if (index === position.index) assert.equal(hash, expected, 'the snapshot is of other records')
    else this.skipped++
    this.#position = position
    this.#hashes.set(position.index, hash)
  }

  #follow({ position, bytes }) {
    const record = Buffer.from(bytes).toString('latin1').split(' ')[0]
    assert.equal(position.index, this.#position.index + 1)
    assert(this.#begun.has(record) && bytesOf(record).equals(bytes), `${record} was never appended`)
    this.#know(position.index, record)
    const before = this.#hashes.get(this.#position.index)
    this.#hashes.set(position.index, hashAfter(before, bytes))
    this.#position = position
    assert.equal(this.#seen.get(record) ?? position.index, position.index, `${record} is there twice`)
    this.#seen.set(record, position.index)
  }

  [Symbol.dispose]() {
    rmSync(this.#folder, { recursive: true, force: true })
  }
}

async function text(bytes) {
  const chunks = []
  for await (const chunk of bytes) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}
