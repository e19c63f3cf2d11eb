/** The units of ops/systemd: accepted by systemd, and their commands run as systemd would run them. */
import { execFile } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, expect, test } from 'vitest'
import { eventually, Place, program } from '../support/cli.ts'
import { describeWith, programs } from '../support/engine.ts'

const UNITS = fileURLToPath(new URL('../../ops/systemd', import.meta.url))
/** systemd looks for it in /usr/local/bin and /usr/bin. test/project/tarball.test.ts installs it there. */
const COMMAND = /^ExecStart=leasehold /gm
const run = promisify(execFile)
const ANALYZE = 'systemd-analyze'
/** From 0 (sandboxed) to 10 (not at all), as `systemd-analyze security` says it, times ten. */
const MAX_EXPOSURE = '20'

/** The value of a setting. */
function setting(unit: string, name: string): string {
  const line = readFileSync(join(UNITS, unit), 'utf8')
    .split('\n')
    .find(text => text.startsWith(`${name}=`))
  if (line === undefined) throw new Error(`${unit} has no ${name}`)
  return line.slice(name.length + 1)
}

/** The words of a command line, as systemd splits it: quotes, `%i` for the instance, `$$` for a dollar, and `$NAME` for the words of a variable. */
function words(line: string, env: Readonly<Record<string, string>>): string[] {
  return [...line.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].flatMap(([, single, double, bare]) => {
    const [, variable] = /^\$(\w+)$/.exec(bare ?? '') ?? []
    if (variable !== undefined) return (env[variable] ?? '').split(' ').filter(word => word !== '')
    return [(single ?? double ?? bare)!.replaceAll('%i', 'nightly').replaceAll('$$', '$')]
  })
}

describeWith([programs['systemd-analyze']], 'systemd', () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-units-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  for (const unit of readdirSync(UNITS))
    writeFileSync(join(folder, unit), readFileSync(join(UNITS, unit), 'utf8').replace(COMMAND, `ExecStart=${program} `))
  const env = { ...process.env, SYSTEMD_UNIT_PATH: `${folder}:` } // and the places of the system
  const verify = (...units: readonly string[]) => run(ANALYZE, ['verify', '--man=no', ...units], { env })

  test('accepts the units without a word', async () => {
    const units = readdirSync(UNITS).map(name => name.replace('@.', '@nightly.'))
    expect(units.sort()).toEqual(['leasehold-run@nightly.service', 'leasehold-run@nightly.timer', 'leasehold.service'])
    expect(await verify(...units)).toEqual({ stdout: '', stderr: '' })
  })

  test('would say so if a setting were wrong', async () => {
    const text = readFileSync(join(folder, 'leasehold.service'), 'utf8')
    writeFileSync(join(folder, 'wrong.service'), text.replace('Restart=on-failure', 'Restart=sometimes').replace('UMask', 'Umask'))
    expect((await verify('wrong.service')).stderr).toMatch(/sometimes[\s\S]*Umask/)
  })

  test('finds the server well sandboxed', async () => {
    const unit = join(folder, 'leasehold.service')
    await run(ANALYZE, ['security', '--offline=true', `--threshold=${MAX_EXPOSURE}`, unit], { env })
    await expect(run(ANALYZE, ['security', '--offline=true', '--threshold=1', unit], { env })).rejects.toThrow()
  })
})

test('the command of the server serves, reads its certificates again on reload, and stops on TERM within its time', async () => {
  await using here = new Place()
  const variables = { LEASEHOLD_SERVE: '--probe 127.0.0.1:0' }
  const [, ...args] = words(setting('leasehold.service', 'ExecStart'), variables).map(word =>
    word.replace('127.0.0.1:7420', '127.0.0.1:0').replace('/run/leasehold/', here.file('')),
  )
  const [, url] = /^LEASEHOLD_URL=(.*)$/.exec(setting('leasehold.service', 'Environment'))!
  const server = here.start(args, { env: { LEASEHOLD_URL: url!.replace('/var/lib/leasehold', here.path) } })
  await server.printed(/probes: /)
  const [kill, hup] = words(setting('leasehold.service', 'ExecReload'), { MAINPID: String(server.pid) })
  expect((await here.spawn(kill!, [hup!, String(server.pid)]).finished).code).toBe(0)
  await server.printed(/no certificates to read again/)
  server.process.kill('SIGTERM')
  expect((await server.finished).code).toBe(0)
})

test('the job of a timer runs on one machine, with its exit code, and the others succeed without running it', async () => {
  await using here = new Place()
  const job = here.file('jobs/nightly')
  mkdirSync(here.file('jobs'))
  writeFileSync(job, `#!/bin/sh\necho ran >> ${here.file('ran')}\nwhile [ ! -e ${here.file('go')} ]; do sleep 0.05; done\nexit 7\n`)
  chmodSync(job, 0o755)
  const [, ...args] = words(setting('leasehold-run@.service', 'ExecStart'), {}).map(word =>
    word.replace('/etc/leasehold/jobs', here.file('jobs')).replace('sleep 30', 'sleep 0'),
  )
  const first = here.start(args)
  await eventually('the job runs', () => readdirSync(here.path).includes('ran'))
  const [second, third] = await Promise.all([here.run(args), here.run(args)])
  expect([second.code, third.code]).toEqual([0, 0])
  writeFileSync(here.file('go'), '')
  expect((await first.finished).code).toBe(7)
  expect(readFileSync(here.file('ran'), 'utf8')).toBe('ran\n')
})
