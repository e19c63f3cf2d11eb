// One server on a file, configured like `leasehold serve`, for benchmarks and tests. `node bench/server-child.mjs FILE [PORT [FACES]]`
import { RelocatingLessor } from '../dist/connect/relocating-lessor.js'
import { loadFaces } from '../dist/face/faces.js'
import { Replica } from '../dist/replica/replica.js'
import { httpListener } from '../dist/server/http/http-listener.js'
import { serve } from '../dist/server/serve.js'
import { FileStore } from '../dist/store/file/file.js'
import { heapInUse } from './heap.mjs'

const [path, port = '0', faces = ''] = process.argv.slice(2)
const replica = await Replica.open(new FileStore({ path, own: { name: 'bench' } }), { owned: true })
const lessor = new RelocatingLessor(replica, { open: () => Promise.reject(new Error('no leases are moved here')) })
const server = await serve({
  lessor,
  listen: `127.0.0.1:${port}`,
  http: httpListener(),
  faces: await loadFaces([faces]),
  figures: () => replica.figures,
})
process.on('message', message => {
  if (message === 'in use') process.send(heapInUse())
  if (message === 'figures')
    process.send({
      cpu: process.cpuUsage(),
      memory: process.memoryUsage(),
      timing: replica.timing,
      stats: replica.stats,
      connections: server.connections,
    })
})
process.on('SIGTERM', async () => {
  await server.close()
  await lessor[Symbol.asyncDispose]()
  process.exit(0)
})
process.send({ port: Number(server.addresses[0].split(':').at(-1)) })
