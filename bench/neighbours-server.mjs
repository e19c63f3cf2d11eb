// The server of soak-neighbours.mjs: all faces and routes, on a file, with a large state. `longest` is answered with its longest turn since the last question.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { FACE_NAMES } from '../dist/face/face.js'
import { loadFaces } from '../dist/face/faces.js'
import { hookRoute } from '../dist/guard/hook-route.js'
import { propose } from '../dist/lessor/propose.js'
import { mcpRoute } from '../dist/mcp/http-route.js'
import { Replica } from '../dist/replica/replica.js'
import { httpListener } from '../dist/server/http/http-listener.js'
import { hashSecret } from '../dist/server/key-secret.js'
import { serve } from '../dist/server/serve.js'
import { FileStore } from '../dist/store/file/file.js'
import { FULL, fillState } from '../test/support/neighbours/large-state.mjs'

const part = Number(process.argv[2] ?? 1)
const sizes = Object.fromEntries(
  Object.entries(FULL).map(([name, size]) => [name, name === 'reservations' || name === 'revoked' ? size : Math.ceil(size * part)]),
)
const folder = mkdtempSync(join(tmpdir(), 'leasehold-neighbours-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
process.on('disconnect', () => process.exit())
process.on('SIGTERM', () => process.exit())

const lessor = await Replica.open(new FileStore({ path: join(folder, 'leases'), own: { name: 'neighbours' } }), { owned: true })
for (const name of ['rich', 'poor', 'other', 'neighbour']) {
  const allow = name === 'poor' ? [{ verb: 'acquire', prefix: 'nothing' }] : [{ verb: 'admin', prefix: '' }]
  await propose(lessor, { kind: 'key', name, hash: hashSecret(`secret-of-${name}`), allow })
}
const ids = await fillState((command, key = 0) => propose(lessor, command, { key }), sizes, 1, 3)
// The fill of soak-fill.mjs comes on top of that: more leases than one key may have by default.
const rules = { ...(await lessor.read({ kind: 'policies' })).value.find(({ prefix }) => prefix === '')?.rules, leasesPerKey: 1_000_000 }
await propose(lessor, { kind: 'policy', prefix: '', rules })
const faces = await loadFaces(FACE_NAMES)
const http = httpListener({ routes: [mcpRoute(), hookRoute()] })
const server = await serve({ lessor, listen: '127.0.0.1:0', http, faces, figures: () => lessor.figures })

const delay = monitorEventLoopDelay({ resolution: 1 })
delay.enable()
process.on('message', () => {
  const longest = delay.max / 1e6
  delay.reset()
  process.send({ longest })
})
process.send({ port: Number(server.addresses[0].split(':').at(-1)), ids })
