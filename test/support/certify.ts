/** Runs `leasehold certify` on a real engine, and parses its JSON output. */
import { type AddressInfo, createServer } from 'node:net'
import type { Fault } from '../../src/cli/certify/fault.ts'
import type { Measured } from '../../src/cli/certify/measure.ts'
import { storeSuite } from '../../src/testing/store-suite.ts'
import type { Finished, Place } from './cli.ts'
import type { Engine } from './engine.ts'

/** The number of sentences of the store suite. */
export const SENTENCES = storeSuite(() => Promise.reject(new Error('nothing is run here'))).length

export interface Last {
  readonly certified: boolean
  readonly store: string
  readonly profile: { readonly durable: boolean }
  readonly measured: Measured & { readonly durable: { readonly says: boolean; readonly measured: string } }
  readonly sentences: { readonly passed: number; readonly failed: number; readonly notTried: number }
  readonly faults: Record<'answersCut' | 'writerKilled' | 'restart', Fault>
  readonly objections: readonly string[]
  readonly left: readonly string[]
}

export function linesOf({ stdout }: Finished): Record<string, unknown>[] {
  return stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as Record<string, unknown>)
}

export function lastOf(finished: Finished): Last {
  const last = linesOf(finished).at(-1)
  if (last?.certified === undefined) throw new Error(`no verdict: ${finished.stdout}${finished.stderr}`)
  return last as unknown as Last
}

/** Runs certify with a `--restart` command that kills the engine with -9 and starts it again. */
export async function certify(place: Place, engine: Engine): Promise<Finished> {
  const operator = createServer(async socket => {
    socket.on('error', () => {})
    await engine.kill9()
    await engine.restart()
    socket.end()
  })
  await new Promise<void>(resolve => operator.listen(0, '127.0.0.1', resolve))
  const { port } = operator.address() as AddressInfo
  const wait = `require('net').connect(${port}, '127.0.0.1').resume().on('close', failed => process.exit(failed ? 1 : 0))`
  try {
    return await place.run(['certify', engine.url, '--json', '--restart', `"${process.execPath}" -e "${wait}"`])
  } finally {
    await new Promise(resolve => operator.close(resolve))
  }
}
