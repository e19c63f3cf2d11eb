/**
 * The Helm chart and the manifests of ops/: rendered and linted by Helm, and checked by kubeconform against the schemas of Kubernetes and of Prometheus' operator.
 * Set LEASEHOLD_RECORD=kubernetes to write ops/kubernetes/leasehold.yaml anew.
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, expect, type TestContext, test } from 'vitest'
import { isSecret } from '../../src/server/key-secret.ts'
import { helm, kubeconform, kubernetesSchemas, prometheusOperator, yamlParser } from '../support/client-sets.ts'
import { orSkip } from '../support/foreign-clients.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const CHART = join(root, 'ops/helm/leasehold')
const MANIFESTS = join(root, 'ops/kubernetes/leasehold.yaml')
const run = promisify(execFile)
/** The oldest version that the chart allows, and the newest whose schemas can be had. */
const VERSIONS = ['1.27.0', '1.37.0']

/** The values of each rendering. */
const VALUES = {
  /** Those of the manifests: everything in one file, for kubectl, which knows no hooks and makes no secrets. */
  plain: { adminKey: { hook: false, existingSecret: 'leasehold-admin-key' } },
  /** What `helm install` takes without further values. */
  installed: {},
  monitored: {
    tls: { requireClientCertificate: true },
    replicas: 5,
    podDisruptionBudget: { maxUnavailable: 2 },
    serviceMonitor: { enabled: true, labels: { release: 'prometheus' } },
    networkPolicy: {
      from: [{ namespaceSelector: { matchLabels: { leases: 'allowed' } } }],
      egress: [{ to: [{ ipBlock: { cidr: '10.0.0.7/32' } }], ports: [{ port: 5432 }] }],
    },
  },
  mesh: {
    adminKey: { create: false },
    tls: { existingSecret: '' },
    topologySpread: { enabled: false },
    networkPolicy: { enabled: false },
    serviceMonitor: { enabled: true },
  },
}
type Name = keyof typeof VALUES

const folder = mkdtempSync(join(tmpdir(), 'leasehold-kubernetes-'))
afterAll(() => rmSync(folder, { recursive: true }))

let rendered: Promise<Readonly<Record<Name, string>>> | undefined

/** Helm takes no settings of the user who runs the tests. */
const clean = { HELM_CONFIG_HOME: folder, HELM_CACHE_HOME: folder, HELM_DATA_HOME: folder, PATH: process.env.PATH }

function render(context: TestContext): Promise<Readonly<Record<Name, string>>> {
  rendered ??= (async () => {
    const program = await helm()
    const charts = await Promise.all(
      Object.entries(VALUES).map(async ([name, values]) => {
        const file = join(folder, `${name}-values.json`)
        writeFileSync(file, JSON.stringify(values)) // JSON is YAML
        const args = ['template', 'leasehold', CHART, '--namespace', 'leasehold', '--kube-version', '1.30.0', '--values', file]
        return [name, (await run(program, args, { env: clean })).stdout] as const
      }),
    )
    return Object.fromEntries(charts) as Record<Name, string>
  })()
  return orSkip('the Helm chart', rendered, context)
}

interface Manifest {
  readonly kind: string
  readonly metadata: { readonly name: string; readonly labels: Record<string, string>; readonly annotations?: Record<string, string> }
  readonly data?: Readonly<Record<string, string>>
  // biome-ignore lint/suspicious/noExplicitAny: the test checks the shape
  readonly spec: any
}

async function yamlOf(context: TestContext) {
  return (await orSkip('YAML', yamlParser(), context))('yaml') as {
    parseAllDocuments(text: string, options: object): readonly { toJS(): Manifest | null }[]
    parse(text: string): { readonly spec: { readonly versions: readonly { readonly schema: { readonly openAPIV3Schema: Schema } }[] } }
  }
}

async function manifests(text: string, context: TestContext): Promise<readonly Manifest[]> {
  return (await yamlOf(context))
    .parseAllDocuments(text, { version: '1.1' }) // as Kubernetes reads it: 0440 is octal
    .map(document => document.toJS())
    .filter(found => found !== null)
}

const ofKind = (found: readonly Manifest[], kind: string) => found.find(manifest => manifest.kind === kind)!

test('Helm lints the chart without a warning, and finds a mistake', async context => {
  const program = await orSkip('Helm', helm(), context)
  const lint = (...settings: readonly string[]) => run(program, ['lint', '--strict', CHART, ...settings], { env: clean })
  expect((await lint()).stdout.match(/\[\w+\].*/g)).toEqual(['[INFO] Chart.yaml: icon is recommended'])
  await expect(lint('--set', 'networkPolicy=')).rejects.toMatchObject({ stdout: expect.stringContaining('[ERROR] templates/') })
})

test('the manifests are what the chart renders, without hooks', async context => {
  const { plain } = await render(context)
  const head =
    '# Made of ops/helm/leasehold (test/ops/kubernetes.test.ts): three servers on a shared store. docs/deploy.md says which Secrets it needs.\n'
  if (process.env.LEASEHOLD_RECORD === 'kubernetes') writeFileSync(MANIFESTS, head + plain)
  const hint = 'Record it: LEASEHOLD_RECORD=kubernetes npx vitest run test/ops/kubernetes.test.ts'
  expect(head + plain, hint).toBe(readFileSync(MANIFESTS, 'utf8'))
})

interface Schema {
  readonly properties?: Readonly<Record<string, Schema>>
  readonly items?: Schema
  additionalProperties?: Schema | boolean
}

/** Refuses fields that a definition does not name, as the strict schemas of Kubernetes do. */
function strict(schema: Schema): Schema {
  for (const each of Object.values(schema.properties ?? {})) strict(each)
  if (schema.items !== undefined) strict(schema.items)
  if (schema.properties !== undefined) schema.additionalProperties ??= false
  return schema
}

/** A folder of schemas for each version. Those of Kubernetes refer to an address of the server that they come from: here to the file beside them. */
async function schemas(context: TestContext): Promise<string> {
  const python = await orSkip('the schemas of Kubernetes', kubernetesSchemas(), context)
  const operator = await orSkip('the resources of Prometheus', prometheusOperator(), context)
  const libraries = join(dirname(dirname(python)), 'lib')
  const found = join(libraries, readdirSync(libraries)[0]!, 'site-packages/kubernetes_validate/kubernetes-json-schema')
  const place = mkdtempSync(join(folder, 'schemas-'))
  for (const version of VERSIONS)
    for (const name of [
      '_definitions',
      'deployment-apps-v1',
      'service-v1',
      'secret-v1',
      'job-batch-v1',
      'networkpolicy-networking-v1',
      'poddisruptionbudget-policy-v1',
    ]) {
      const text = readFileSync(join(found, `v${version}-local-strict`, `${name}.json`), 'utf8')
      const beside = `"file://${place}/v${version}-_definitions.json#`
      writeFileSync(join(place, `v${version}-${name}.json`), text.replaceAll('"/api/_definitions.json#', beside))
    }
  const definition = readFileSync(join(operator, 'example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml'), 'utf8')
  const schema = strict((await yamlOf(context)).parse(definition).spec.versions[0]!.schema.openAPIV3Schema)
  for (const version of VERSIONS) writeFileSync(join(place, `v${version}-servicemonitor-monitoring-v1.json`), JSON.stringify(schema))
  return join(place, '{{.NormalizedKubernetesVersion}}-{{.ResourceKind}}{{.KindSuffix}}.json')
}

test('every rendering is valid for the oldest and the newest Kubernetes, and unknown fields are found', async context => {
  const charts = await render(context)
  const program = await orSkip('kubeconform', kubeconform(), context)
  const location = await schemas(context)
  const file = (name: string, text: string) => {
    const path = join(folder, `${name}.yaml`)
    writeFileSync(path, text)
    return path
  }
  const check = (version: string, ...files: readonly string[]) =>
    run(program, ['-strict', '-summary', '-kubernetes-version', version, '-schema-location', location, ...files]).catch(
      error => error as { stdout: string },
    )
  const files = Object.entries(charts).map(([name, text]) => file(name, text))
  const count = (await Promise.all(Object.values(charts).map(text => manifests(text, context)))).flat().length
  const summary = `Summary: ${count} resources found in ${files.length} files - Valid: ${count}, Invalid: 0, Errors: 0, Skipped: 0\n`
  for (const version of VERSIONS) expect((await check(version, ...files)).stdout).toBe(summary)
  const wrong = [
    file('wrong-probe', charts.plain.replace('readinessProbe:', 'readynessProbe:')),
    file('wrong-policy', charts.plain.replace('podSelector:', 'podsSelector:')),
    file('wrong-monitor', charts.monitored.replace('serverName:', 'servername:')),
  ]
  for (const version of VERSIONS)
    expect((await check(version, ...wrong)).stdout).toMatch(/(?=[\s\S]*readynessProbe)(?=[\s\S]*podsSelector)(?=[\s\S]*servername)/)
})

test('the secret of the first key is in a Secret that the Job reads, and no command prints it', async context => {
  const charts = await render(context)
  const installed = await manifests(charts.installed, context)
  const secret = ofKind(installed, 'Secret')
  const text = Buffer.from(secret.data!.secret!, 'base64').toString()
  expect(isSecret(text)).toBe(true)
  // The Job must find the Secret, and both must stay when the chart is removed: the store has the key.
  expect(secret.metadata.annotations).toMatchObject({
    'helm.sh/resource-policy': 'keep',
    'helm.sh/hook': 'pre-install',
    'helm.sh/hook-weight': '-1',
  })
  for (const name of ['installed', 'plain'] as const) {
    const job = ofKind(await manifests(charts[name], context), 'Job')
    const { containers, volumes } = job.spec.template.spec
    expect(volumes).toContainEqual({ name: 'admin-key', secret: { secretName: 'leasehold-admin-key', defaultMode: 0o440 } })
    expect(containers[0].volumeMounts).toContainEqual({ name: 'admin-key', mountPath: '/admin-key', readOnly: true })
    for (const command of containers[0].args.join(' ').matchAll(/key create[^;|&]*/g))
      expect(command[0]).toContain('--secret-file /admin-key/secret')
  }
  expect(charts.installed.split(secret.data!.secret!)).toHaveLength(2)
  // The manifests make none: a secret in a file that everyone has would be none.
  expect((await manifests(charts.plain, context)).map(({ kind }) => kind)).not.toContain('Secret')
})

test('a policy opens the port for clients and no other, to those whom the values name, and closes the way out but to the store', async context => {
  const charts = await render(context)
  const policy = async (name: Name) => ofKind(await manifests(charts[name], context), 'NetworkPolicy')
  const plain = await policy('plain')
  expect(plain.spec).toMatchObject({ policyTypes: ['Ingress'], ingress: [{ ports: [{ protocol: 'TCP', port: 'leasehold' }] }] })
  expect(plain.spec.ingress[0].from).toBeUndefined()
  const { spec } = ofKind(await manifests(charts.plain, context), 'Deployment')
  expect(spec.template.metadata.labels).toMatchObject(plain.spec.podSelector.matchLabels)
  expect(spec.template.spec.containers[0].ports).toContainEqual({ name: 'leasehold', containerPort: 7420 })
  expect((await policy('monitored')).spec).toMatchObject({
    policyTypes: ['Ingress', 'Egress'],
    ingress: [{ from: VALUES.monitored.networkPolicy.from }],
    egress: [{ ports: [{ port: 53 }, { port: 53 }] }, ...VALUES.monitored.networkPolicy.egress],
  })
  expect(await policy('mesh')).toBeUndefined()
})

test('Prometheus finds the servers by their Service, with a key and by TLS', async context => {
  const charts = await render(context)
  const monitored = await manifests(charts.monitored, context)
  const { spec, metadata } = ofKind(monitored, 'ServiceMonitor')
  const service = ofKind(monitored, 'Service')
  expect(metadata.labels).toMatchObject({ release: 'prometheus' })
  expect(service.metadata.labels).toMatchObject(spec.selector.matchLabels)
  expect(service.spec.ports.map(({ name }: { name: string }) => name)).toEqual([spec.endpoints[0].port])
  expect(spec.endpoints[0]).toMatchObject({
    ...{ path: '/metrics', scheme: 'https', authorization: { credentials: { name: 'leasehold-prometheus', key: 'secret' } } },
    tlsConfig: { serverName: 'leasehold.leasehold.svc', cert: { secret: { name: 'leasehold-prometheus-tls' } } },
  })
  const mesh = ofKind(await manifests(charts.mesh, context), 'ServiceMonitor').spec.endpoints[0]
  expect([mesh.scheme, mesh.tlsConfig]).toEqual([undefined, undefined])
  // A cluster without the operator of Prometheus does not know the resource.
  expect((await manifests(charts.installed, context)).map(({ kind }) => kind)).not.toContain('ServiceMonitor')
})

test('servers are probed on the port for probes, spread over nodes, and not drained all at once', async context => {
  const found = await manifests(readFileSync(MANIFESTS, 'utf8'), context)
  const of = (kind: string) => ofKind(found, kind)
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
  const charts = await render(context)
  const args = await Promise.all(
    (['plain', 'monitored', 'mesh'] as const).map(async name => {
      const deployment = ofKind(await manifests(charts[name], context), 'Deployment')
      return deployment.spec.template.spec.containers[0].args as readonly string[]
    }),
  )
  expect(args.map(words => [words.includes('--tls-cert'), words.includes('--tls-ca'), words.includes('--behind-proxy')])).toEqual([
    [true, false, false],
    [true, true, false],
    [false, false, true],
  ])
})
