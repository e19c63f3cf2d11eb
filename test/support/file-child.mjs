// Another process on the same file, for tests. It executes commands that arrive over IPC, on the built library.
import { loadEngine } from '../../dist/store/file/engine.js'
import { FileStore } from '../../dist/store/file/file.js'
import { FileLog } from '../../dist/store/file/log.js'

let store
let raw
let after = { index: 0, nonce: 0n }

const calls = {
  async open(options) {
    store = new FileStore(options)
    const opened = await store.open()
    after = opened.head
    return opened.head
  },
  async append(text) {
    const answer = await store.append(new TextEncoder().encode(text), after)
    if (answer.position) after = answer.position
    return answer
  },
  /** The age of each record, as this process sees it. */
  async ages() {
    const { records } = await store.read({ index: 0, nonce: 0n })
    return records.map(record => record.age)
  },
  /** Saves a snapshot of the first record. */
  async keepFirst(path) {
    const log = new FileLog({ path, engine: await loadEngine(), timeout: 5_000 })
    await log.open()
    const { records } = await log.read({ index: 0, nonce: 0n })
    async function* bytes() {
      yield new Uint8Array(10)
    }
    await log.snapshot(records[0].position, bytes())
    await log.close()
  },
  /** Appends for ever, and reports each acknowledgement. */
  async pour() {
    for (let i = 1; ; i++) {
      await calls.append(`${i}`)
      process.send(['acknowledged', i, after])
    }
  },
  /** The next records, when there are any. */
  async next() {
    const { records } = await store.read(after, { wait: new AbortController().signal })
    after = records.at(-1).position
    return records.map(({ bytes }) => new TextDecoder().decode(bytes))
  },
  async announce(address) {
    await store.announce(address)
  },
  /** Waits up to `timeout` ms for the lock. */
  async beginTransaction(path, timeout = 0) {
    const { DatabaseSync } = await loadEngine()
    raw = new DatabaseSync(path, { timeout })
    raw.exec('begin immediate')
  },
  /** Keeps a file open, as another program would. */
  async hold(path, sql) {
    const { DatabaseSync } = await loadEngine()
    raw = new DatabaseSync(path, { timeout: 0 })
    raw.exec(sql)
  },
  async endTransaction() {
    raw.exec('rollback')
    raw.close()
  },
  async beginSnapshot() {
    async function* endless() {
      yield new Uint8Array(300_000)
      process.send(['half', 0])
      await new Promise(() => {})
    }
    await store.snapshot(after, endless())
  },
  /** Reads everything in a loop, and exits during a read. */
  async exitReading(code) {
    setTimeout(() => process.exit(code), 5 + code)
    for (;;) await store.read({ index: 0, nonce: 0n })
  },
  /** Leaves everything open and disconnects: the process ends when nothing keeps it alive. */
  async leave() {
    store.read(after, { wait: new AbortController().signal }).catch(() => {})
    store.append(new TextEncoder().encode('last'), after).then(
      () => process.stdout.write('answered'),
      ({ reason }) => process.stdout.write(reason),
    )
    process.disconnect()
  },
}

process.on('message', ([id, call, ...args]) => {
  calls[call](...args).then(
    value => process.connected && process.send([id, true, value]),
    ({ code, message, reason, facts }) => process.send([id, false, { code, message, reason, facts }]),
  )
})
