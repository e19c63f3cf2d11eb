/** Starts a PgBouncer in front of a Postgres. In transaction mode each statement may run in another session. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chown, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { EVENT_TIMEOUT } from './bounds.ts'
import { find, freePorts, type Needed, unprivilegedUser } from './engine.ts'

export const pgbouncer: Needed = { program: 'pgbouncer', packages: ['pgbouncer'] }

export interface Pooler extends AsyncDisposable {
  readonly port: number
}

/** `sessions`: the number of connections to Postgres. The default is small, so that clients must share them. */
export async function pooler(target: number, { sessions = 3, mode = 'transaction' } = {}): Promise<Pooler> {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-pgbouncer-'))
  const [port] = await freePorts(1)
  const config = `[databases]
* = host=127.0.0.1 port=${target}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${join(folder, 'users')}
pool_mode = ${mode}
default_pool_size = ${sessions}
server_login_retry = 1
max_client_conn = 200
logfile = ${join(folder, 'log')}
`
  await writeFile(join(folder, 'pgbouncer.ini'), config)
  await writeFile(join(folder, 'users'), '"postgres" ""\n')
  // PgBouncer refuses to run as root.
  const user = process.getuid?.() === 0 ? unprivilegedUser() : undefined
  if (user) await chown(folder, user.uid, user.gid)
  const endWithParent = find('setpriv') ? ['setpriv', '--pdeathsig', 'KILL', '--'] : []
  const [program, ...args] = [...endWithParent, find('pgbouncer')!, join(folder, 'pgbouncer.ini')]
  const child = spawn(program!, args, { cwd: folder, stdio: 'ignore', ...(user && { uid: user.uid, gid: user.gid }) })
  await once(child, 'spawn')
  const end = async () => {
    if (child.exitCode === null && child.signalCode === null) {
      const gone = once(child, 'exit')
      process.kill(child.pid!, 'SIGKILL')
      await gone
    }
    await rm(folder, { recursive: true, force: true })
  }
  for (let attempt = 1; !(await answers(port!)); attempt++) {
    if (attempt * 25 > EVENT_TIMEOUT || child.exitCode !== null) {
      const log = await readFile(join(folder, 'log'), 'utf8').catch(() => '')
      await end()
      throw new Error(`PgBouncer did not start: ${log.slice(-1_000)}`)
    }
    await sleep(25)
  }
  return { port: port!, [Symbol.asyncDispose]: end }
}

async function answers(port: number): Promise<boolean> {
  const client = new pg.Client({ host: '127.0.0.1', port, user: 'postgres', database: 'postgres', connectionTimeoutMillis: 1_000 })
  client.on('error', () => {})
  try {
    await client.connect()
    return (await client.query('select 1')).rowCount === 1
  } catch {
    return false
  } finally {
    void client.end().catch(() => {})
  }
}
