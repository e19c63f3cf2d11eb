/** The Go programs of the face tests, in one place: each is compiled once, with pinned modules, and several tests run it. */
import { existsSync, readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { goClients } from './foreign-clients.ts'

const KUBERNETES = [
  'k8s.io/client-go@v0.37.2',
  'k8s.io/kubectl@v0.37.2',
  'sigs.k8s.io/controller-runtime@v0.25.2',
  'k8s.io/component-base@v0.37.2',
  'k8s.io/api@v0.37.2',
]
const CONSUL = ['github.com/hashicorp/consul/api@v1.32.1']

/** Where `npm run bench` keeps the program that it has built (bench/peers/consul.mjs). */
const BUILT_CONSUL = 'bench/consul-1.20.6/consul'

/** The program `consul`, if it is installed or was built for the benchmarks. To build it takes eight minutes of one core: too long for tests. */
export function installedConsul(): string | undefined {
  const cache = process.env.LEASEHOLD_CACHE ?? join(homedir(), '.cache/leasehold')
  const found = [...(process.env.PATH ?? '').split(':').map(folder => join(folder, 'consul')), join(cache, BUILT_CONSUL)].find(existsSync)
  if (found === undefined) console.warn('NOT TESTED: consul lock: the program is not installed; npm run bench -- face-consul builds it')
  return found
}

function source(face: string): string {
  return readFileSync(new URL(`../face/${face}/clients.go`, import.meta.url), 'utf8')
}

/** client-go, controller-runtime and kubectl: test/face/kubernetes/clients.go. */
export function kubernetesProgram(): Promise<string> {
  return goClients(source('kubernetes'), ...KUBERNETES)
}

/** Consul's own client: test/face/consul/clients.go. */
export function consulProgram(): Promise<string> {
  return goClients(source('consul'), ...CONSUL)
}
