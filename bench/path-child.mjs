// A server, or a program that uses one, whose functions are counted. Started by path.mjs: `node bench/path-child.mjs server FILE` or `… client URL`.
//
// Messages: `take` answers with what has run since the last `take`, by file and function. `acquire` lets the client acquire one name, and answers with what that
// ran; `release` gives it back.
import { Session } from 'node:inspector/promises'
import { fileURLToPath } from 'node:url'

const dist = fileURLToPath(new URL('../dist/', import.meta.url))
const session = new Session()
session.connect()
await session.post('Profiler.enable')
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })

/** V8's name for the fields of a class, which belong to its constructor: they do not count as a function. */
const FIELDS = '<instance_members_initializer>'

/** Returns what has run since the last call: `{ file, name, calls }` of each function. */
async function take() {
  const { result } = await session.post('Profiler.takePreciseCoverage')
  const ours = result.filter(({ url }) => url.startsWith('file://') && fileURLToPath(url).startsWith(dist))
  return ours.flatMap(({ url, functions }) =>
    functions.flatMap(({ functionName, ranges: [{ count, startOffset }] }) =>
      count === 0 || functionName === FIELDS
        ? []
        : [{ file: fileURLToPath(url).slice(dist.length), name: `${functionName}@${startOffset}`, calls: count }],
    ),
  )
}

async function server(path) {
  const { RelocatingLessor } = await import('../dist/connect/relocating-lessor.js')
  const { Replica } = await import('../dist/replica/replica.js')
  const { httpListener } = await import('../dist/server/http/http-listener.js')
  const { serve } = await import('../dist/server/serve.js')
  const { FileStore } = await import('../dist/store/file/file.js')
  const replica = await Replica.open(new FileStore({ path, own: { name: 'path' } }), { owned: true })
  const lessor = new RelocatingLessor(replica, { open: () => Promise.reject(new Error('no leases are moved here')) })
  const served = await serve({ lessor, listen: '127.0.0.1:0', http: httpListener(), figures: () => replica.figures })
  const close = async () => {
    await served.close()
    await lessor[Symbol.asyncDispose]()
  }
  return { port: Number(served.addresses[0].split(':').at(-1)), close }
}

async function client(url) {
  const { connect } = await import('../dist/index.js')
  const leases = await connect(url, { ttl: 600_000 })
  let number = 0
  let lease
  const acquire = async () => {
    await take()
    lease = await leases.acquire(`path/client/${number++}`)
    return take()
  }
  const release = () => lease.release()
  return { port: 0, close: () => leases.close(), acquire, release }
}

const [role, where] = process.argv.slice(2)
const { port, close, ...more } = await (role === 'server' ? server(where) : client(where))
const work = { take, ...more }
process.on('message', async message => process.send({ counted: await work[message]() }))
process.on('disconnect', async () => {
  await close()
  process.exit(0)
})
process.send({ port })
