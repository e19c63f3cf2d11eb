/** The alert rules and the dashboard in ops/, loaded by a real Prometheus that scrapes a real server through a staged outage. */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { describePrograms, type Engine, engine, freePorts, programs } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const RULES = join(root, 'ops/prometheus/alerts.yml')
const LEASEHOLD = join(root, 'dist/cli/leasehold.js')
const DASHBOARD = JSON.parse(readFileSync(join(root, 'ops/grafana/leasehold.json'), 'utf8'))
const run = promisify(execFile)
const PROMTOOL = 'promtool'
const PROMETHEUS = 'prometheus'

interface Alert {
  readonly labels: { readonly alertname: string }
  readonly state: string
}

describePrograms('redis', [programs.promtool, programs.prometheus], 'Prometheus', () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-prometheus-'))
  const children: ChildProcess[] = []
  let redis: Engine
  let ports: number[] = []

  const start = (program: string, ...args: readonly string[]) => {
    const child = spawn(program, args, { stdio: 'ignore' })
    children.push(child)
    return child
  }
  const ask = async (path: string) =>
    (await fetch(`http://127.0.0.1:${ports[1]}${path}`)).json() as Promise<{ readonly status: string; readonly data: never }>

  beforeAll(async () => {
    redis = await engine('redis')
    ports = await freePorts(2)
    start(process.execPath, LEASEHOLD, 'serve', '--store', redis.url, '--listen', `127.0.0.1:${ports[0]}`)
    const config = {
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      rule_files: [RULES],
      scrape_configs: [{ job_name: 'leasehold', static_configs: [{ targets: [`127.0.0.1:${ports[0]}`] }] }],
    }
    writeFileSync(join(folder, 'prometheus.yml'), JSON.stringify(config)) // JSON is YAML
    start(
      PROMETHEUS,
      `--config.file=${folder}/prometheus.yml`,
      `--storage.tsdb.path=${folder}/data`,
      `--web.listen-address=127.0.0.1:${ports[1]}`,
    )
    await eventually(async () => expect(await value('leasehold_store_up')).toBe('1'))
  })

  afterAll(async () => {
    for (const child of children)
      if (child.exitCode === null && child.signalCode === null) {
        child.kill('SIGKILL')
        await once(child, 'exit')
      }
    await redis?.[Symbol.asyncDispose]()
    rmSync(folder, { recursive: true, force: true })
  })

  async function value(query: string): Promise<string | undefined> {
    const answer = await ask(`/api/v1/query?query=${encodeURIComponent(query)}`).catch(() => undefined)
    return (answer?.data as { readonly result: readonly { readonly value: readonly [number, string] }[] } | undefined)?.result[0]?.value[1]
  }

  async function active(name: string): Promise<boolean> {
    const { data } = await ask('/api/v1/alerts')
    return (data as { readonly alerts: readonly Alert[] }).alerts.some(({ labels }) => labels.alertname === name)
  }

  test('promtool accepts the rules and the example configuration', async () => {
    expect((await run(PROMTOOL, ['check', 'rules', RULES])).stdout).toContain('SUCCESS')
    expect((await run(PROMTOOL, ['check', 'config', join(root, 'ops/prometheus/prometheus.yml')])).stdout).toContain('SUCCESS')
  })

  test('each rule fires for the figures that it is about, after its time, and not for ordinary ones', async () => {
    const file = join(folder, 'test.yml')
    writeFileSync(file, JSON.stringify({ rule_files: [RULES], evaluation_interval: '15s', tests: [fires(), staysQuiet()] }))
    expect((await run(PROMTOOL, ['test', 'rules', file])).stdout).toContain('SUCCESS')
  })

  test('every panel of the dashboard asks for figures that a server has', async () => {
    const metrics = await (await fetch(`http://127.0.0.1:${ports[0]}/metrics`)).text()
    for (const { title, targets } of DASHBOARD.panels as readonly { title: string; targets: readonly { expr: string }[] }[])
      for (const { expr } of targets) {
        const query = expr.replaceAll('$__rate_interval', '1m').replaceAll('$job', 'leasehold')
        expect([title, (await ask(`/api/v1/query?query=${encodeURIComponent(query)}`)).status]).toEqual([title, 'success'])
        for (const [name] of expr.matchAll(/\b(leasehold|nodejs|process)_\w+/g))
          expect([title, metrics.includes(`# TYPE ${name.replace(/_(bucket|count|sum)$/, '')} `)]).toEqual([title, true]) // a histogram of requests is empty before the first
      }
  })

  test('in an outage of the store its rule fires, and when the server is gone so does the other', async () => {
    expect(await active('LeaseholdStoreDown')).toBe(false)
    await redis.kill9()
    await expect.poll(() => active('LeaseholdStoreDown'), { interval: 250 }).toBe(true)
    children[0]!.kill('SIGKILL')
    await expect.poll(() => active('LeaseholdDown'), { interval: 250 }).toBe(true)
  })
})

/** What promtool must find: this alert, with the texts that the rule file has for it. */
function alert(alertname: string, eval_time: string, labels: readonly object[]): object {
  const [, summary, runbook] = new RegExp(`alert: ${alertname}\\n[^]*?summary: '(.*)'\\n *runbook: (.*)\\n`).exec(
    readFileSync(RULES, 'utf8'),
  )!
  return { alertname, eval_time, exp_alerts: labels.map(each => ({ ...each, exp_annotations: { summary, runbook } })) }
}

/** Series in the notation of promtool: `0+5x40` begins at 0 and grows by 5, forty times. */
function fires(): object {
  const labels = 'job="leasehold",instance="a"'
  const at = { instance: 'a', job: 'leasehold' }
  const expected = (severity: string, more: object = at) => [{ exp_labels: { severity, ...more } }]
  return {
    interval: '15s',
    input_series: [
      { series: `up{${labels}}`, values: '1x4 0x80' },
      { series: `leasehold_store_up{${labels}}`, values: '1x4 0x80' },
      { series: `leasehold_quiet{${labels}}`, values: '0x4 1x80' },
      { series: `leasehold_rewinds{${labels}}`, values: '0x4 1x80' },
      { series: `leasehold_oldest_wait_seconds{${labels}}`, values: '4000x80' },
      { series: `leasehold_events_total{type="lapsed",${labels}}`, values: '0+5x80' },
      { series: `leasehold_events_total{type="granted",${labels}}`, values: '0+10x80' },
      { series: `leasehold_stalls{${labels}}`, values: '0+1x80' },
      { series: `nodejs_eventloop_lag_p99_seconds{${labels}}`, values: '0.5x80' },
      { series: `leasehold_requests_total{code="LIMIT",${labels}}`, values: '0+60x80' },
      { series: `leasehold_commit_seconds_bucket{le="0.5",${labels}}`, values: '0+0x80' },
      { series: `leasehold_commit_seconds_bucket{le="1",${labels}}`, values: '0+9x80' },
      { series: `leasehold_commit_seconds_bucket{le="+Inf",${labels}}`, values: '0+10x80' },
    ],
    alert_rule_test: [
      alert('LeaseholdDown', '2m15s', expected('page')),
      alert('LeaseholdStoreDown', '1m30s', []),
      alert('LeaseholdStoreDown', '2m', expected('page')),
      alert('LeaseholdQuiet', '1m30s', expected('page')),
      alert('LeaseholdLogWentBack', '2m', expected('page')),
      alert('LeaseholdWaitTooLong', '6m', expected('ticket')),
      alert('LeaseholdManyLapses', '6m', expected('ticket', { job: 'leasehold' })),
      alert('LeaseholdStalls', '6m', expected('ticket')),
      alert('LeaseholdBusyLoop', '6m', expected('ticket')),
      alert('LeaseholdRefusals', '8m', expected('ticket', { job: 'leasehold', code: 'LIMIT' })),
      alert('LeaseholdSlowCommits', '12m', expected('ticket', { instance: 'a' })),
    ],
  }
}

function staysQuiet(): object {
  const labels = 'job="leasehold",instance="a"'
  return {
    interval: '15s',
    input_series: [
      { series: `up{${labels}}`, values: '1x80' },
      { series: `leasehold_store_up{${labels}}`, values: '1x80' },
      { series: `leasehold_quiet{${labels}}`, values: '0x80' },
      { series: `leasehold_rewinds{${labels}}`, values: '0x80' },
      { series: `leasehold_oldest_wait_seconds{${labels}}`, values: '40x80' },
      { series: `leasehold_events_total{type="lapsed",${labels}}`, values: '0+1x80' },
      { series: `leasehold_events_total{type="granted",${labels}}`, values: '0+100x80' },
      { series: `leasehold_stalls{${labels}}`, values: '1x80' },
      { series: `nodejs_eventloop_lag_p99_seconds{${labels}}`, values: '0.02x80' },
      { series: `leasehold_requests_total{code="HELD",${labels}}`, values: '0+600x80' },
      { series: `leasehold_build_info{version="1",${labels}}`, values: '1x80' },
    ],
    alert_rule_test: [
      ...[
        'Down',
        'StoreDown',
        'Quiet',
        'LogWentBack',
        'WaitTooLong',
        'ManyLapses',
        'Stalls',
        'BusyLoop',
        'Refusals',
        'SlowCommits',
        'Versions',
      ],
    ].map(name => alert(`Leasehold${name}`, '15m', [])),
  }
}
