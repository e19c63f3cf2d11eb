// A client that discovers and watches in its own process, and reports to its parent which instance it lost and when. `node bench/registry-watcher.mjs URL CAPABILITY`
import { connect } from '../dist/index.js'
import { seconds } from './measure.mjs'

const [url, capability] = process.argv.slice(2)
const leases = await connect(url)
const stop = new AbortController()
process.on('disconnect', () => stop.abort())
const began = seconds()
const found = await leases.registry.discover({ capabilities: [capability] }).ready()
process.send({ ready: seconds() - began })
for await (const { type, instance } of found.changes({ signal: stop.signal }))
  if (type === 'removed') process.send({ lost: instance.instance, at: seconds() })
await leases[Symbol.asyncDispose]()
