import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { Replica } from '../../../src/replica/replica.ts'
import { httpListener } from '../../../src/server/http/http-listener.ts'
import { serve } from '../../../src/server/serve.ts'
import { MemoryLog, MemoryStore } from '../../../src/store/memory.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeWith, find, freePorts } from '../../support/engine.ts'
import { ask } from '../../support/http-world.ts'

/** Starts a server on a clock of its own. Returns its port. */
async function server(clock: ManualClock): Promise<number> {
  const lessor = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
  const opened = await serve({ lessor, listen: '127.0.0.1:0', http: httpListener({}), clock })
  onTestFinished(async () => {
    await opened.close()
    await lessor[Symbol.asyncDispose]()
  })
  return Number(opened.addresses[0]!.split(':').at(-1))
}

/** Starts Prometheus for this test. Returns its port. */
async function prometheus(config: object): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-prometheus-'))
  const [port] = await freePorts(1)
  // JSON is YAML.
  await writeFile(join(folder, 'prometheus.yml'), JSON.stringify(config))
  const child: ChildProcess = spawn(
    find('prometheus')!,
    [
      `--config.file=${join(folder, 'prometheus.yml')}`,
      `--storage.tsdb.path=${join(folder, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=error',
    ],
    { stdio: 'ignore', cwd: folder },
  )
  const gone = once(child, 'exit')
  const killed = () => child.kill('SIGKILL')
  process.once('exit', killed)
  onTestFinished(async () => {
    process.off('exit', killed)
    child.kill('SIGKILL')
    await gone
    await rm(folder, { recursive: true, force: true })
  })
  return port!
}

interface Scraped {
  readonly labels: Readonly<Record<string, string>>
  readonly discoveredLabels: Readonly<Record<string, string>>
  readonly health: string
}

/** The targets of Prometheus as soon as they are `enough`, or when the time is over. */
async function targets(port: number, enough: (found: readonly Scraped[]) => boolean): Promise<readonly Scraped[]> {
  const until = performance.now() + EVENT_TIMEOUT
  for (let found: readonly Scraped[] = []; ; await sleep(200)) {
    try {
      found = (await ask(port, undefined, 'GET', '/api/v1/targets?state=active')).json.data.activeTargets
    } catch {
      // it is still starting
    }
    if (enough(found) || performance.now() > until) return found
  }
}

const names = (found: readonly Scraped[]) => found.map(({ labels }) => labels.agent).sort()

describeWith([{ program: 'prometheus', packages: ['prometheus'] }], 'Prometheus', () => {
  test('scrapes registered instances, and drops those that are deregistered or lapse', async () => {
    const clock = new ManualClock()
    const port = await server(clock)
    const address = `http://127.0.0.1:${port}`
    const register = (name: string, more: object = {}) =>
      ask(port, undefined, 'PUT', `/v1/services/${name}`, { address, ttl: '1h', tags: ['blue'], ...more })
    for (const name of ['planner/a', 'planner/leaver', 'critic/a']) expect((await register(name)).status).toBe(201)
    expect((await register('planner/mortal', { ttl: '5m', grace: 0 })).status).toBe(201)
    const watching = await prometheus({
      global: { scrape_interval: '1s' },
      scrape_configs: [
        {
          job_name: 'agents',
          http_sd_configs: [{ url: `${address}/v1/http_sd?service=planner`, refresh_interval: '1s' }],
          relabel_configs: [
            { source_labels: ['__meta_leasehold_tags'], regex: '.*,blue,.*', action: 'keep' },
            { source_labels: ['__meta_leasehold_instance'], target_label: 'agent' },
          ],
        },
      ],
    })
    const all = await targets(watching, found => found.length === 3 && found.every(({ health }) => health === 'up'))
    expect(names(all)).toEqual(['a', 'leaver', 'mortal'])
    // The registered address is this server itself, which has metrics to scrape.
    expect(all.map(({ health }) => health)).toEqual(['up', 'up', 'up'])
    expect(all[0]!.discoveredLabels).toMatchObject({ __meta_leasehold_service: 'planner', __meta_leasehold_status: 'passing' })
    await clock.advance(6 * 60_000)
    expect((await ask(port, undefined, 'DELETE', '/v1/services/planner/leaver')).status).toBe(204)
    expect(names(await targets(watching, found => found.length === 1))).toEqual(['a'])
  })
})
