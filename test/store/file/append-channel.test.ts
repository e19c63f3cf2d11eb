// The short way of appends to the worker thread, with a real thread at its other end.
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { expect, onTestFinished, test } from 'vitest'
import { AppendChannel } from '../../../src/store/file/append-channel.ts'

const compiled = new URL('../../../dist/store/file/append-channel.js', import.meta.url)

/**
 * A thread that serves a channel: it appends nothing, and answers with the index after the one it was given. It answers a record that begins with 1 only when
 * `gate` is opened, and one that begins with 2 by message.
 */
const SERVING = `
  const { parentPort, workerData } = require('node:worker_threads')
  import(workerData.compiled).then(({ AppendListener }) => {
    const listener = new AppendListener(workerData.memory)
    const gate = new Int32Array(workerData.gate)
    const serve = () => {
      for (let request = listener.next(); request !== undefined; request = listener.next()) {
        const { call, record, after } = request
        if (record[0] === 1) Atomics.wait(gate, 0, 0)
        const position = { index: after.index + 1, nonce: after.nonce + BigInt(record.length) }
        if (!listener.answer(record[0] === 2 ? undefined : position)) parentPort.postMessage([call, position.index])
      }
    }
    parentPort.on('message', message => {
      listener.messageReceived()
      parentPort.postMessage(message)
      setImmediate(serve)
    })
    parentPort.postMessage('ready')
  })`

async function serving() {
  const channel = new AppendChannel()
  const gate = new Int32Array(new SharedArrayBuffer(4))
  const workerData = { compiled: compiled.href, memory: channel.memory, gate: gate.buffer }
  const worker = new Worker(SERVING, { eval: true, workerData })
  onTestFinished(async () => void (await worker.terminate()))
  const next = async () => (await once(worker, 'message'))[0]
  expect(await next()).toBe('ready')
  const send = (message: unknown) => {
    worker.postMessage(message)
    channel.messageSent()
  }
  let call = 0
  /** Asks until the worker waits at the channel: it may be on its way there, or have left it because nothing came. */
  const append = async (kind: number, index = 7) => {
    for (;;) {
      const answer = channel.append(++call, Uint8Array.of(kind, 0, 0), { index, nonce: 5n })
      if (answer !== undefined) return { call, answer }
      send('come back')
      expect(await next()).toBe('come back')
    }
  }
  const openGate = () => {
    Atomics.store(gate, 0, 1)
    Atomics.notify(gate, 0)
  }
  send('begin')
  expect(await next()).toBe('begin')
  return { channel, append, send, next, openGate }
}

/** The answer of a request that was not late; on a busy machine the first ones may be. */
async function answered({ append, next }: Awaited<ReturnType<typeof serving>>, index: number) {
  for (;;) {
    const { call, answer } = await append(0, index)
    if (answer !== 'by message') return answer
    expect(await next()).toEqual([call, index + 1])
  }
}

test('requests are answered in the same turn, with the position that the worker gave', async () => {
  const line = await serving()
  for (let index = 0; index < 50; index++) expect(await answered(line, index)).toEqual({ index: index + 1, nonce: 8n })
})

test('a request whose answer is late is answered by message, and the caller goes on meanwhile', async () => {
  const line = await serving()
  // The worker answers only after the gate is opened below, so `append` has stopped waiting by itself.
  const { call, answer } = await line.append(1)
  expect(answer).toBe('by message')
  expect(line.channel.append(call + 1, Uint8Array.of(0), { index: 9, nonce: 0n })).toBeUndefined()
  const late = line.next()
  line.openGate()
  expect(await late).toEqual([call, 8])
  expect(await answered(line, 8)).toEqual({ index: 9, nonce: 8n })
})

test('after a late answer the next request does not wait', async () => {
  const line = await serving()
  const { call } = await line.append(1)
  const late = line.next()
  line.openGate()
  expect(await late).toEqual([call, 8])
  expect(line.channel.append(call + 1, Uint8Array.of(0), { index: 9, nonce: 0n })).toBeUndefined()
})

test('an answer that is more than a position comes by message', async () => {
  const line = await serving()
  const { call, answer } = await line.append(2)
  expect(answer).toBe('by message')
  expect(await line.next()).toEqual([call, 8])
})

test('a message reaches a worker that waits for requests', async () => {
  const line = await serving()
  await answered(line, 1)
  line.send('hello')
  expect(await line.next()).toBe('hello')
  expect(await answered(line, 2)).toEqual({ index: 3, nonce: 8n })
})

test('a record that is too large for the channel is sent by message', async () => {
  const { channel } = await serving()
  expect(channel.append(1, new Uint8Array(1 << 20), { index: 1, nonce: 1n })).toBeUndefined()
})
