/**
 * Mutated recordings of real clients, on the real wire: each gets an error of its own protocol or is closed, the server has no internal error, keeps nothing
 * of it, and goes on answering. LEASEHOLD_MUTATIONS says how many for each face.
 */
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { expect, test } from 'vitest'
import { etcdFace } from '../../src/face/etcd/gateway.ts'
import { redisFace } from '../../src/face/redis/commands.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { Dice, mutated } from '../support/resp-mutation.ts'
import { place, Raw } from '../support/resp-place.ts'

const COUNT = Number(process.env.LEASEHOLD_MUTATIONS ?? 4_000)
const AT_ONCE = 32
const LONG = { timeout: 900_000 + COUNT * 20 }
/** A broken request may leave a client waiting: it gives up after this, in ms. */
const PATIENCE = 1_000

function recording(face: string): readonly Buffer[] {
  const lines = readFileSync(new URL(`${face}/recorded.jsonl`, import.meta.url), 'utf8').split('\n')
  return lines.filter(line => line !== '').map(line => Buffer.from(JSON.parse(line) as string, 'latin1'))
}

/** Sends the bytes and returns what comes back. */
function sent(port: number, bytes: Buffer): Promise<string> {
  return new Promise(resolve => {
    const socket = connect({ host: '127.0.0.1', port })
    let answer = ''
    const end = () => {
      clearTimeout(timer)
      socket.destroy()
      resolve(answer)
    }
    const timer = setTimeout(end, PATIENCE)
    socket.on('data', chunk => {
      answer += chunk.toString('latin1')
      // More may follow, but the first answer says what we want to know.
      end()
    })
    socket.on('error', end)
    socket.on('close', end)
    socket.end(bytes)
  })
}

async function fuzz(port: number, face: string): Promise<readonly string[]> {
  const corpus = recording(face)
  expect(corpus.length).toBeGreaterThan(20)
  const dice = new Dice(20_261_116)
  const answers: string[] = []
  let left = COUNT
  const client = async () => {
    while (left-- > 0) {
      const bytes = mutated(dice, corpus)
      const answer = await sent(port, bytes)
      if (/internal error/i.test(answer)) expect.fail(`${JSON.stringify(bytes.toString('latin1'))} was answered ${answer}`)
      answers.push(answer)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, client))
  return answers
}

test('mutated requests of Redis clients get errors of RESP, and disturb nothing', LONG, async () => {
  const errors: unknown[] = []
  await using here = await place({ faces: [redisFace()], log: logOf(errors) })
  using before = new Raw(here.port)
  await before.ask('SET', 'untouched', 'mine', 'NX', 'PX', 3_600_000)
  const answers = await fuzz(here.port, 'redis')
  expect(answers.filter(answer => answer.startsWith('-')).length).toBeGreaterThan(COUNT / 100)
  expect(errors).toEqual([])
  expect(await before.ask('GET', 'untouched')).toBe('mine')
})

test('mutated requests of etcd clients get errors of HTTP and etcd, and disturb nothing', LONG, async () => {
  const errors: unknown[] = []
  await using here = await place({ faces: [etcdFace()], http: httpListener(), log: logOf(errors) })
  const ask = async (path: string, body: object) => {
    const response = await fetch(`http://127.0.0.1:${here.port}/v3/kv/${path}`, { method: 'POST', body: JSON.stringify(body) })
    return (await response.json()) as { readonly count?: string }
  }
  await ask('put', { key: 'dW50b3VjaGVk', value: 'YQ==' })
  const answers = await fuzz(here.port, 'etcd')
  expect(answers.filter(answer => /^HTTP\/1\.1 4/.test(answer)).length).toBeGreaterThan(COUNT / 100)
  expect(answers.filter(answer => /^HTTP\/1\.1 200/.test(answer)).length).toBeGreaterThan(COUNT / 100)
  expect(errors).toEqual([])
  expect((await ask('range', { key: 'dW50b3VjaGVk' })).count).toBe('1')
})

function logOf(errors: unknown[]) {
  const quiet = () => {}
  return { info: quiet, warn: quiet, debug: quiet, error: (...entry: readonly unknown[]) => void errors.push(entry) }
}
