// Stands in for a server of ours and for Redis, and does nothing: it answers as fast as it reads. What a call against it takes is the client's part.
// Run as a process of its own, so that it takes no time from the program that measures. Its first line of output is its port.
import { createServer } from 'node:net'

let lease = 0

const map = pairs =>
  `%${Object.keys(pairs).length}\r\n${Object.entries(pairs)
    .map(pair => pair.map(value).join(''))
    .join('')}`
const value = of => (typeof of === 'number' ? `:${of}\r\n` : `$${of.length}\r\n${of}\r\n`)

/** `text`: a whole command, or several: both clients wait for an answer before they ask again, but for their greetings. */
function answer(text) {
  if (text.includes('LEASE.ACQUIRE')) return map({ lease: ++lease, token: lease, ttl: 30_000, revision: lease })
  if (text.includes('EVALSHA')) return value(1)
  const first = text.includes('WITNESS') ? map({ server: 'leasehold', proto: 3 }) : text.includes('HELLO') ? map({ proto: 3 }) : '+OK\r\n'
  return first + '+OK\r\n'.repeat(text.split(/^\*\d+\r$/m).length - 2)
}

const server = createServer(socket => {
  socket.setNoDelay(true)
  socket.on('error', () => socket.destroy())
  socket.on('data', data => socket.write(answer(data.toString('latin1'))))
})
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
