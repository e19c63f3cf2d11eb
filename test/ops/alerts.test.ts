/** Every alert asks for metrics that a server has, leads to a runbook, and fires before its limit; the queries of the objectives can be evaluated. */
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { describeWith, programs } from '../support/engine.ts'
import { world } from '../support/http-world.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const file = (path: string) => readFileSync(join(root, path), 'utf8')
const RULES = 'ops/prometheus/alerts.yml'
const OBJECTIVES = [...file('docs/operate/slo.md').matchAll(/^```promql\n(.*?)\n```$/gms)].map(([, query]) => query!)
const run = promisify(execFile)

interface AlertRule {
  readonly name: string
  readonly expr: string
  readonly severity: string
  readonly summary: string
  readonly runbook: string
}

const rules: readonly AlertRule[] = [
  ...file(RULES).matchAll(
    /- alert: (\w+)\n +expr: '(.*)'\n +for: \w+\n +labels:\n +severity: (\w+)\n +annotations:\n +summary: '(.*)'\n +runbook: (\S+)\n/g,
  ),
].map(([, name, expr, severity, summary, runbook]) => ({
  name: name!,
  expr: expr!,
  severity: severity!,
  summary: summary!,
  runbook: runbook!,
}))

test('every alert can be read, and no two have one name', () => {
  expect(rules.length).toBe(file(RULES).split('- alert:').length - 1)
  expect(new Set(rules.map(({ name }) => name)).size).toBe(rules.length)
})

test('every alert, every objective and every panel of Grafana asks for metrics that a server has', async () => {
  await using here = await world()
  const { text } = await here.ask('GET', '/metrics')
  const known = new Set(
    [...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)].flatMap(([, name, type]) =>
      type === 'histogram' ? [`${name}_bucket`, `${name}_count`, `${name}_sum`] : [name!],
    ),
  )
  const panels = (JSON.parse(file('ops/grafana/leasehold.json')) as { panels: { title: string; targets: { expr: string }[] }[] }).panels
  const asked = [
    ...rules.map(({ name, expr }) => [name, expr] as const),
    ...OBJECTIVES.map((expr, i) => [`objective ${i + 1}`, expr] as const),
    ...panels.flatMap(({ title, targets }) => targets.map(({ expr }) => [title, expr] as const)),
  ]
  const missing = asked.flatMap(([where, expr]) =>
    [...expr.matchAll(/\b(?:leasehold|nodejs|process)_\w+/g)].filter(([name]) => !known.has(name)).map(([name]) => `${where}: ${name}`),
  )
  expect(missing).toEqual([])
  expect(asked.filter(([, expr]) => !/\b(leasehold|nodejs|process)_\w+|\bup\b/.test(expr))).toEqual([])
})

test('every alert leads to a runbook of its name, which begins with what to look at, and every runbook has an alert', () => {
  const pages = ['docs/runbooks.md', 'docs/operate/limits.md']
  const runbooks = pages.flatMap(page =>
    [...file(page).matchAll(/^## (\w+)\n\n(.*)$/gm)].map(([, name, first]) => ({
      name: name!,
      first: first!,
      at: `${page}#${name!.toLowerCase()}`,
    })),
  )
  expect(rules.map(({ name, runbook }) => [name, runbook]).sort()).toEqual(runbooks.map(({ name, at }) => [name, at]).sort())
  expect(runbooks.filter(({ first }) => !first.startsWith('**Look at** ')).map(({ name }) => name)).toEqual([])
  const listed = [...file('docs/operate/metrics.md').matchAll(/^\| \[(\w+)\]/gm)].map(([, name]) => name)
  expect(listed.sort()).toEqual(rules.map(({ name }) => name).sort())
})

/** Series in the notation of promtool (`0+5x40` begins at 0 and grows by 5, forty times): those that are about to reach a limit, and ordinary ones. */
const at = 'job="leasehold",instance="a"'
const acquired = (outcome: string) => `leasehold_request_seconds_count{operation="acquire",outcome="${outcome}",${at}}`
const bucket = (name: string, le: string, more = '') => `leasehold_${name}_bucket{${more}le="${le}",${at}}`
const GRANT = 'operation="acquire",outcome="ok",'
const RENEWAL = 'operation="renew",outcome="ok",'
const cases: readonly {
  readonly alert: string
  readonly labels?: Record<string, string>
  readonly bad: Record<string, string>
  readonly good: Record<string, string>
}[] = [
  {
    alert: 'LeaseholdGrantsFail',
    labels: { instance: '' },
    bad: { [acquired('ok')]: '0+98x400', [acquired('failed')]: '0+2x400' },
    good: { [acquired('ok')]: '0+98x400', [acquired('failed')]: '0+0x400', [acquired('refused')]: '0+900x400' },
  },
  {
    alert: 'LeaseholdSlowGrants',
    labels: { instance: '' },
    bad: {
      [bucket('request_seconds', '0.5', GRANT)]: '0+97x400',
      [bucket('request_seconds', '1', GRANT)]: '0+100x400',
      [bucket('request_seconds', '+Inf', GRANT)]: '0+100x400',
    },
    good: { [bucket('request_seconds', '0.5', GRANT)]: '0+100x400', [bucket('request_seconds', '+Inf', GRANT)]: '0+100x400' },
  },
  {
    alert: 'LeaseholdSlowRenewals',
    labels: { instance: '' },
    bad: {
      [bucket('request_seconds', '1', RENEWAL)]: '0+97x400',
      [bucket('request_seconds', '2.5', RENEWAL)]: '0+100x400',
      [bucket('request_seconds', '+Inf', RENEWAL)]: '0+100x400',
    },
    good: { [bucket('request_seconds', '1', RENEWAL)]: '0+100x400', [bucket('request_seconds', '+Inf', RENEWAL)]: '0+100x400' },
  },
  {
    alert: 'LeaseholdLateTimers',
    labels: { instance: '' },
    bad: {
      [bucket('timer_delay_seconds', '1')]: '0+9x400',
      [bucket('timer_delay_seconds', '5')]: '0+10x400',
      [bucket('timer_delay_seconds', '+Inf')]: '0+10x400',
    },
    good: { [bucket('timer_delay_seconds', '1')]: '0+10x400', [bucket('timer_delay_seconds', '+Inf')]: '0+10x400' },
  },
  {
    alert: 'LeaseholdFloodedName',
    labels: { what: 'waiters' },
    bad: { [`leasehold_limit_used_ratio{what="waiters",${at}}`]: '0.81x400' },
    good: { [`leasehold_limit_used_ratio{what="waiters",${at}}`]: '0.8x400' },
  },
  {
    alert: 'LeaseholdNearLimit',
    labels: { what: 'leases' },
    bad: { [`leasehold_limit_used_ratio{what="leases",${at}}`]: '0.81x400' },
    good: { [`leasehold_limit_used_ratio{what="leases",${at}}`]: '0.8x400' },
  },
  {
    alert: 'LeaseholdKeyNearLimit',
    labels: { key: 'k' },
    bad: { [`leasehold_key_limit_used_ratio{key="k",${at}}`]: '0.9x400' },
    good: { [`leasehold_key_limit_used_ratio{key="k",${at}}`]: '0.5x400' },
  },
  {
    alert: 'LeaseholdKeyExpires',
    labels: { key: 'k' },
    bad: { [`leasehold_key_days_left{key="k",${at}}`]: '13x400' },
    good: { [`leasehold_key_days_left{key="k",${at}}`]: '15x400', [`leasehold_key_days_left{key="former",${at}}`]: '-9x400' },
  },
  {
    alert: 'LeaseholdCertificateExpires',
    labels: { file: 'certificate' },
    bad: { [`leasehold_certificate_days_left{file="certificate",${at}}`]: '13x400' },
    good: { [`leasehold_certificate_days_left{file="certificate",${at}}`]: '15x400' },
  },
  {
    alert: 'LeaseholdDiskFills',
    bad: { [`leasehold_disk_free_bytes{${at}}`]: '60e9-1e8x400' },
    good: { [`leasehold_disk_free_bytes{${at}}`]: '60e9x400' },
  },
  {
    alert: 'LeaseholdSnapshotsFail',
    bad: { [`leasehold_snapshot_failures{${at}}`]: '0x60 1x300' },
    good: { [`leasehold_snapshot_failures{${at}}`]: '3x400' },
  },
  {
    alert: 'LeaseholdSlowSnapshots',
    bad: { [`leasehold_snapshot_seconds{${at}}`]: '90x400' },
    good: { [`leasehold_snapshot_seconds{${at}}`]: '2x400' },
  },
  {
    alert: 'LeaseholdRulesBehind',
    bad: { [`leasehold_rules{${at}}`]: '1x6000', [`leasehold_rules_known{${at}}`]: '2x6000' },
    good: { [`leasehold_rules{${at}}`]: '2x6000', [`leasehold_rules_known{${at}}`]: '2x6000' },
  },
]

describeWith([programs.promtool], 'promtool', () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-alerts-'))
  const json = (name: string, content: object) => {
    const path = join(folder, name)
    writeFileSync(path, JSON.stringify(content)) // JSON is YAML
    return path
  }

  /** All in one run: promtool evaluates every rule for every minute of each test. */
  async function judged(
    these: typeof cases,
    kind: 'bad' | 'good',
    { every, at: eval_time }: { readonly every: string; readonly at: string },
  ) {
    const input_series = these.flatMap(each => Object.entries(each[kind]).map(([series, values]) => ({ series, values })))
    const alert_rule_test = these.map(({ alert, labels = {} }) => {
      const { severity, summary, runbook } = rules.find(({ name }) => name === alert)!
      const given = Object.entries({ job: 'leasehold', instance: 'a', severity, ...labels }).filter(([, value]) => value !== '')
      const expected = { exp_labels: Object.fromEntries(given), exp_annotations: { summary, runbook } }
      return { alertname: alert, eval_time, exp_alerts: kind === 'bad' ? [expected] : [] }
    })
    const path = json(`${kind}.json`, {
      rule_files: [join(root, RULES)],
      evaluation_interval: every,
      tests: [{ interval: every, input_series, alert_rule_test }],
    })
    return (await run('promtool', ['test', 'rules', path])).stdout
  }

  test('finds that each early alert fires for the figures that it is about, and not for ordinary ones', async () => {
    const slow = cases.filter(({ alert }) => alert === 'LeaseholdRulesBehind')
    const others = cases.filter(each => !slow.includes(each))
    for (const kind of ['bad', 'good'] as const) {
      expect(await judged(others, kind, { every: '1m', at: '90m' })).toContain('SUCCESS')
      expect(await judged(slow, kind, { every: '30m', at: '25h' })).toContain('SUCCESS')
    }
    expect(cases.map(({ alert }) => alert)).toEqual(rules.slice(-cases.length).map(({ name }) => name))
  })

  test('evaluates the queries of the objectives', async () => {
    expect(OBJECTIVES.length).toBeGreaterThan(5)
    const place = mkdtempSync(join(tmpdir(), 'leasehold-objectives-'))
    const path = join(place, 'rules.json')
    const recorded = OBJECTIVES.map((expr, i) => ({ record: `objective:${i}`, expr }))
    writeFileSync(path, JSON.stringify({ groups: [{ name: 'objectives', rules: recorded }] }))
    expect((await run('promtool', ['check', 'rules', path])).stdout).toContain(`${OBJECTIVES.length} rules found`)
    rmSync(place, { recursive: true })
  })
})
