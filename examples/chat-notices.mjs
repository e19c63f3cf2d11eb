/**
 * Receives the notices of `leasehold pool notify --webhook`, checks their signatures and writes them into a chat room.
 *
 *   CHAT_URL=https://chat.example/hooks/… SECRET_FILE=webhook.secret PORT=8080 node examples/chat-notices.mjs
 */
import { createHmac, timingSafeEqual } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'

const { CHAT_URL, SECRET_FILE, PORT = '8080' } = process.env
const secret = Buffer.from(readFileSync(SECRET_FILE, 'utf8').trim().slice('whsec_'.length), 'base64')
const MOST_BYTES = 65_536
const OLDEST_SECONDS = 300
/** Ids of notices that are in the room already. */
const seen = new Set()

const isGenuine = ({ 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signature = '' }, body) => {
  if (!(Math.abs(Date.now() / 1_000 - Number(timestamp)) <= OLDEST_SECONDS)) return false
  const expected = Buffer.from(`v1,${createHmac('sha256', secret).update(`${id}.${timestamp}.${body}`).digest('base64')}`)
  const given = Buffer.from(signature)
  return given.length === expected.length && timingSafeEqual(given, expected)
}

/** Names are chosen by users: without this, an account `<!channel>` would call the whole room. */
const escaped = text => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')

const server = createServer(async (request, response) => {
  let body = ''
  for await (const piece of request.setEncoding('utf8')) {
    body += piece
    if (body.length > MOST_BYTES) return response.writeHead(413).end()
  }
  if (!isGenuine(request.headers, body)) return response.writeHead(401).end()
  const { id, text } = JSON.parse(body)
  if (seen.has(id)) return response.writeHead(200).end()
  try {
    const message = JSON.stringify({ text: escaped(text) })
    const headers = { 'content-type': 'application/json' }
    const { ok } = await fetch(CHAT_URL, { method: 'POST', headers, body: message, signal: AbortSignal.timeout(5_000) })
    if (!ok) return response.writeHead(502).end() // it is sent again
  } catch {
    return response.writeHead(502).end()
  }
  seen.add(id)
  if (seen.size > 10_000) seen.delete(seen.values().next().value)
  response.writeHead(204).end()
})

server.listen(Number(PORT), '127.0.0.1', () => console.log(`waiting for notices on http://127.0.0.1:${server.address().port}/`))
