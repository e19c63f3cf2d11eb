/** A reviewer: registers itself, and answers over HTTP until it is told to stop. See agents.py. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import { connect } from 'leasehold'

const server = createServer((request, response) => {
  const document = new URL(request.url, 'http://localhost').searchParams.get('document')
  response.end(`document ${document} was reviewed by process ${process.pid}`)
}).listen(0, '127.0.0.1')
await once(server, 'listening')

const leases = await connect(process.env.LEASEHOLD_URL ?? 'leasehold://127.0.0.1:7420')
const me = await leases.registry.register({
  service: 'critic',
  address: `http://127.0.0.1:${server.address().port}`,
  capabilities: ['review'],
})
console.log(`registered with lease ${me.lease}`)
await Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')])
await leases.close() // deregisters
server.close()
