// The fill of soak-neighbours.mjs: leases that are acquired on many connections of RESP and renewed in batches, while the dashboard is read and backups are taken.
import { connect } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'

const CONNECTIONS = 500
const TTL = 30_000
/** Commands under way on one connection. */
const WINDOW = 50
/** Each lease is renewed this often, in ms. */
const RENEW_EVERY = 10_000
const DASHBOARD = [
  '/v1/overview',
  '/v1/activity',
  '/v1/rows?of=leases&sort=-waiters',
  '/v1/rows?of=resources',
  '/v1/state',
  '/v1/trees',
  '/metrics',
]

/** A connection of RESP whose replies come in order: integers, texts, and flat or nested lists of them. */
class Connection {
  #socket
  #waiting = []
  #bytes = Buffer.alloc(0)

  constructor(port) {
    this.#socket = connect(port, '127.0.0.1')
    this.#socket.on('data', chunk => this.#data(chunk))
    this.#socket.on('error', () => {})
    this.#socket.on('close', () => {
      for (const settle of this.#waiting.splice(0)) settle(new Error('the connection was closed'))
    })
  }

  ask(...words) {
    return new Promise(settle => {
      this.#waiting.push(settle)
      this.#socket.write(`*${words.length}\r\n${words.map(word => `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`).join('')}`)
    })
  }

  close() {
    this.#socket.destroy()
  }

  #data(chunk) {
    this.#bytes = this.#bytes.length === 0 ? chunk : Buffer.concat([this.#bytes, chunk])
    let from = 0
    for (;;) {
      const parsed = parse(this.#bytes, from)
      if (parsed === undefined) break
      from = parsed.end
      this.#waiting.shift()?.(parsed.value)
    }
    this.#bytes = this.#bytes.subarray(from)
  }
}

/** One reply from `at` on; undefined if it is not whole yet. An error is an Error. */
function parse(bytes, at) {
  const line = bytes.indexOf('\r\n', at)
  if (line < 0) return undefined
  const text = bytes.toString('utf8', at + 1, line)
  const end = line + 2
  switch (bytes[at]) {
    case 0x2b:
      return { value: text, end }
    case 0x2d:
      return { value: new Error(text), end }
    case 0x3a:
      return { value: Number(text), end }
    case 0x24: {
      const length = Number(text)
      if (length < 0) return { value: undefined, end }
      return bytes.length < end + length + 2 ? undefined : { value: bytes.toString('utf8', end, end + length), end: end + length + 2 }
    }
    case 0x2a: {
      const items = []
      let next = end
      for (let i = 0; i < Number(text); i++) {
        const item = parse(bytes, next)
        if (item === undefined) return undefined
        items.push(item.value)
        next = item.end
      }
      return { value: items, end: next }
    }
    default:
      throw new Error(`an unknown reply: ${text.slice(0, 100)}`)
  }
}

/** `ask`: reads a route of the dashboard. */
export async function holdFill({ port, secret, leases, seconds, ask }) {
  const result = { connections: CONNECTIONS, acquired: 0, fillSeconds: 0, renewals: 0, lost: 0, reads: 0, backups: 0 }
  const connections = Array.from({ length: CONNECTIONS }, () => new Connection(port))
  await Promise.all(connections.map(connection => connection.ask('AUTH', secret)))
  const share = Math.ceil(leases / CONNECTIONS)
  const began = performance.now()
  let over = false
  const reading = (async () => {
    for (let i = 0; !over; i++) {
      await ask(DASHBOARD[i % DASHBOARD.length])
      result.reads++
      await pause(200)
    }
  })()
  const saving = (async () => {
    while (!over) {
      await ask('/v1/backup')
      result.backups++
      await pause(5_000)
    }
  })()

  /** The ids of one connection grow while it fills, and are renewed from the first on. */
  const fillOne = async (connection, c, ids) => {
    const count = Math.min(share, leases - c * share)
    for (let from = 0; from < count; from += WINDOW) {
      const asked = Array.from({ length: Math.min(WINDOW, count - from) }, (_, i) =>
        connection.ask('LEASE.ACQUIRE', `fill/${c}/${from + i}`, 'TTL', TTL),
      )
      for (const reply of await Promise.all(asked)) {
        const id = Array.isArray(reply) ? reply.find(item => Number.isSafeInteger(item) && item > 0) : undefined
        if (id === undefined) throw new Error(`a lease was not granted: ${reply}`)
        ids.push(id)
        result.acquired++
      }
    }
  }
  const renewOne = async (connection, ids) => {
    while (!over) {
      const round = performance.now()
      for (let from = 0; from < ids.length && !over; from += 100) {
        const reply = await connection.ask('LEASE.RENEW', ...ids.slice(from, from + 100))
        if (reply instanceof Error) continue // not done: it is renewed again in the next round
        const ttls = Array.isArray(reply) ? reply : [reply]
        result.renewals += ttls.length
        result.lost += ttls.filter(ttl => ttl === -1).length
      }
      await pause(Math.max(100, RENEW_EVERY - (performance.now() - round)))
    }
  }
  const held = connections.map(() => [])
  const renewing = connections.map((connection, c) => renewOne(connection, held[c]))
  await Promise.all(connections.map((connection, c) => fillOne(connection, c, held[c])))
  result.fillSeconds = (performance.now() - began) / 1_000
  await pause(seconds * 1_000)
  over = true
  await Promise.all([...renewing, reading])
  for (const connection of connections) connection.close()
  await Promise.race([saving, pause(5_000)])
  return result
}
