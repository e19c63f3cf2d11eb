/** A Sentinel in front of a Redis and its replicas, on a free loopback port in a folder of its own. It ends with the test process. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { find, freePorts } from './engine.ts'
import { eventually } from './eventually.ts'
import { tell } from './redis-command.ts'

export interface Sentinel extends AsyncDisposable {
  readonly port: number
  send(...command: string[]): Promise<unknown>
}

/** Watches the primary on this port under the name `main`. */
export async function sentinel(primary: number): Promise<Sentinel> {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-sentinel-'))
  const [port] = (await freePorts(1)) as [number]
  const [file, log] = [join(folder, 'sentinel.conf'), join(folder, 'log')]
  await writeFile(file, `port ${port}\nbind 127.0.0.1\ndir ${folder}\nlogfile ${log}\nsentinel monitor main 127.0.0.1 ${primary} 1\n`)
  const endWithParent = find('setpriv') ? ['setpriv', '--pdeathsig', 'KILL', '--'] : []
  const [program, ...args] = [...endWithParent, find('redis-server')!, file, '--sentinel']
  const child = spawn(program!, args, { cwd: folder, stdio: 'ignore' })
  await once(child, 'spawn')
  const send = (...command: string[]) => tell({ url: `redis://127.0.0.1:${port}` }, ...command)
  const end = async () => {
    if (child.exitCode === null && child.signalCode === null) {
      const gone = once(child, 'exit')
      process.kill(child.pid!, 'SIGKILL')
      await gone
    }
    await rm(folder, { recursive: true, force: true })
  }
  try {
    await eventually(() => send('PING'))
  } catch (cause) {
    const text = await readFile(log, 'utf8').catch(() => '')
    await end()
    throw new Error(`the Sentinel did not start: ${text.slice(-1_000)}`, { cause })
  }
  return { port, send, [Symbol.asyncDispose]: end }
}
