/**
 * The Helm chart and the manifests of ops/: rendered by Helm itself (as the library that Java programs use, since its program cannot be had from a registry), and
 * checked against the schemas of Kubernetes. Set LEASEHOLD_RECORD=kubernetes to write ops/kubernetes/leasehold.yaml anew.
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, type TestContext, test } from 'vitest'
import { helm, kubernetesValidate, yamlParser } from '../support/client-sets.ts'
import { JAVA, orSkip, output } from '../support/foreign-clients.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const CHART = join(root, 'ops/helm/leasehold')
const MANIFESTS = join(root, 'ops/kubernetes/leasehold.yaml')
const run = promisify(execFile)
/** The oldest version that the chart allows, and the newest whose schemas can be had. */
const VERSIONS = ['1.27', '1.37']

/** Those of the manifests: everything in one file, for kubectl, which knows no hooks. */
const PLAIN = 'adminKey.hook=false'
const MUTUAL = 'adminKey.hook=false tls.requireClientCertificate=true replicas=5 podDisruptionBudget.maxUnavailable=2'
const MESH = 'adminKey.create=false tls.existingSecret= topologySpread.enabled=false'

let rendered: Promise<{ readonly lint: string; readonly charts: readonly string[] }> | undefined

function render(context: TestContext) {
  rendered ??= (async () => {
    const java = await helm()
    const [lint, ...charts] = (await output(JAVA, ...java, 'Chart', CHART, PLAIN, MUTUAL, MESH)).trim().split('\n')
    return { lint: lint!, charts: charts.map(line => JSON.parse(line) as string) }
  })()
  return orSkip('the Helm chart', rendered, context)
}

interface Manifest {
  readonly kind: string
  readonly metadata: { readonly name: string; readonly labels: Record<string, string> }
  // biome-ignore lint/suspicious/noExplicitAny: the test checks the shape
  readonly spec: any
}

async function manifests(text: string, context: TestContext): Promise<readonly Manifest[]> {
  const yaml = (await orSkip('YAML', yamlParser(), context))('yaml') as {
    parseAllDocuments(text: string): readonly { toJS(): Manifest | null }[]
  }
  return yaml
    .parseAllDocuments(text)
    .map(document => document.toJS())
    .filter(found => found !== null)
}

test('Helm lints the chart without a warning', async context => {
  const { lint } = await render(context)
  expect(lint).toBe('false [[INFO] Chart.yaml: icon is recommended]')
})

test('the manifests are what the chart renders, without hooks', async context => {
  const { charts } = await render(context)
  const head =
    '# Made of ops/helm/leasehold (test/ops/kubernetes.test.ts): three servers on a shared store. docs/deploy.md says which Secrets it needs.\n'
  if (process.env.LEASEHOLD_RECORD === 'kubernetes') writeFileSync(MANIFESTS, head + charts[0])
  const hint = 'Record it: LEASEHOLD_RECORD=kubernetes npx vitest run test/ops/kubernetes.test.ts'
  expect(head + charts[0], hint).toBe(readFileSync(MANIFESTS, 'utf8'))
})

test('every rendering is valid for the oldest and the newest Kubernetes, and an unknown field is found', async context => {
  const { charts } = await render(context)
  const python = await orSkip('kubernetes-validate', kubernetesValidate(), context)
  const validate = join(dirname(python), 'kubernetes-validate')
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-kubernetes-'))
  try {
    const files = charts.map((_, i) => join(folder, `${i}.yaml`))
    for (const [i, chart] of charts.entries()) writeFileSync(files[i]!, chart)
    const wrong = join(folder, 'wrong.yaml')
    writeFileSync(wrong, charts[0]!.replace('readinessProbe:', 'readynessProbe:'))
    const results = VERSIONS.map(version => run(validate, ['--strict', '--quiet', '-k', version, ...files]))
    expect((await Promise.all(results)).map(({ stdout, stderr }) => stdout + stderr)).toEqual(['', ''])
    await expect(run(validate, ['--strict', '-k', VERSIONS[0]!, wrong])).rejects.toMatchObject({ code: 1 })
  } finally {
    rmSync(folder, { recursive: true })
  }
})

test('servers are probed on the port for probes, spread over nodes, and not drained all at once', async context => {
  const found = await manifests(readFileSync(MANIFESTS, 'utf8'), context)
  const of = (kind: string) => found.find(manifest => manifest.kind === kind)!
  const { template, selector, replicas } = of('Deployment').spec
  const [container] = template.spec.containers
  const probe = container.ports.find((port: { name: string }) => port.name === 'probe')
  expect(container.args).toEqual(expect.arrayContaining(['--probe', `0.0.0.0:${probe.containerPort}`]))
  for (const name of ['startupProbe', 'readinessProbe', 'livenessProbe']) expect(container[name].httpGet.port).toBe('probe')
  // A store that is down is no reason to restart: only what restarts nothing asks for it.
  const paths = ['startupProbe', 'livenessProbe', 'readinessProbe'].map(name => container[name].httpGet.path)
  expect(paths).toEqual(['/healthz', '/healthz', '/readyz'])
  expect(container.securityContext).toMatchObject({ readOnlyRootFilesystem: true, allowPrivilegeEscalation: false })
  expect(template.spec.securityContext).toMatchObject({ runAsNonRoot: true })
  expect(template.spec.topologySpreadConstraints.map((rule: { topologyKey: string }) => rule.topologyKey)).toContain(
    'kubernetes.io/hostname',
  )
  expect(of('PodDisruptionBudget').spec.maxUnavailable).toBeLessThan(replicas)
  // All select the servers, and not the Job.
  for (const labels of [of('Service').spec.selector, of('PodDisruptionBudget').spec.selector.matchLabels, selector.matchLabels]) {
    expect(template.metadata.labels).toMatchObject(labels)
    expect(of('Job').spec.template.metadata.labels).not.toMatchObject(labels)
  }
  // The probe's port is for the node, not for clients.
  expect(of('Service').spec.ports.map((port: { targetPort: string }) => port.targetPort)).toEqual(['leasehold'])
})

test('a client certificate is required if the values say so, and a chart without TLS says that a proxy encrypts', async context => {
  const { charts } = await render(context)
  const args = await Promise.all(
    charts.map(async chart => {
      const [deployment] = (await manifests(chart, context)).filter(({ kind }) => kind === 'Deployment')
      return deployment!.spec.template.spec.containers[0].args as readonly string[]
    }),
  )
  expect(args.map(words => [words.includes('--tls-cert'), words.includes('--tls-ca'), words.includes('--behind-proxy')])).toEqual([
    [true, false, false],
    [true, true, false],
    [false, false, true],
  ])
})
