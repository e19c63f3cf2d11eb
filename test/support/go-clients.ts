/** The Go programs of the face tests, in one place: each is compiled once, with pinned modules, and several tests run it. */
import { readFileSync } from 'node:fs'
import { goClients } from './foreign-clients.ts'

const KUBERNETES = [
  'k8s.io/client-go@v0.37.2',
  'k8s.io/kubectl@v0.37.2',
  'sigs.k8s.io/controller-runtime@v0.25.2',
  'k8s.io/component-base@v0.37.2',
  'k8s.io/api@v0.37.2',
]
const CONSUL = ['github.com/hashicorp/consul/api@v1.32.1']

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
