// `npm run bench [-- NAME…] [--json]`: measures what Leasehold costs, compared with the bare work beneath it, in one run.
//
// Machines are noisy, so compare ratios. Run it on an otherwise idle machine.
import { rmSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { agents } from './agents.mjs'
import { embedded } from './embedded.mjs'
import { faceEtcd } from './face-etcd.mjs'
import { faceRedis } from './face-redis.mjs'
import { holder } from './holder.mjs'
import { http } from './http.mjs'
import { kubernetes } from './kubernetes.mjs'
import { library } from './library.mjs'
import { scratch } from './measure.mjs'
import { memory } from './memory.mjs'
import { pools } from './pools.mjs'
import { python } from './python.mjs'
import { registry } from './registry.mjs'
import { registryServer } from './registry-server.mjs'
import { server } from './server.mjs'
import { stores } from './stores.mjs'

const { values, positionals } = parseArgs({ allowPositionals: true, options: { json: { type: 'boolean', default: false } } })
const groups = {
  embedded,
  memory,
  holder,
  stores,
  registry,
  'registry-server': registryServer,
  server,
  http,
  pools,
  python,
  agents,
  kubernetes,
  library,
  'face-redis': faceRedis,
  'face-etcd': faceEtcd,
}
const chosen = positionals.length === 0 ? Object.keys(groups) : positionals
const results = []

/** Prints one row: name, value, unit, and the reference that it is compared with. */
function report(name, value, unit, { target = '', ratio = undefined, against = '' } = {}) {
  results.push({ name, value, unit, target, ...(ratio !== undefined && { ratio: Number(ratio.toFixed(2)), against }) })
  if (values.json) return
  const shown = value >= 1_000 ? Math.round(value).toLocaleString('en') : value.toFixed(value < 10 ? 2 : 1)
  const beside = ratio === undefined ? '' : `  ${ratio.toFixed(2)} × ${against}`
  console.log(`${name.padEnd(62)} ${shown.padStart(12)} ${unit.padEnd(11)}${beside}${target === '' ? '' : `  (${target})`}`)
}

try {
  for (const name of chosen) {
    const group = groups[name]
    if (group === undefined) throw new Error(`there is no benchmark ${name}; there are ${Object.keys(groups).join(', ')}`)
    if (!values.json) console.log(`\n${name}`)
    await group(report)
  }
} finally {
  rmSync(scratch, { recursive: true, force: true })
}
if (values.json) console.log(JSON.stringify({ node: process.version, results }))
