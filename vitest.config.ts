import { defineConfig } from 'vitest/config'
import { EVENT_TIMEOUT, QUICK_TIMEOUT, TEST_TIMEOUT } from './test/support/bounds.ts'
import { BUILT, builtSource } from './test/support/built-source.ts'
import { setCertificatesAside } from './test/support/certificates.ts'
import { innerTests, quickTests, replacingTests, sharingTests } from './test/support/quick-tests.ts'

/** The groups of `npm test` and `npm run test:quick` (scripts/test.mjs), each by its own process of Vitest. Without the variable, every test can be named. */
const group = process.env.LEASEHOLD_TEST
const everything = 'test/**/*.test.ts'
const clients = 'test/face/**/*.test.ts'
/** The source as it was built, for all groups of `npm test`. */
const plugins = ['inner', 'outer', 'clients'].includes(group ?? '') ? builtSource() : []
if (group !== 'installation') setCertificatesAside()

const groups: Readonly<Record<string, { readonly include: string[] }>> = {
  inner: { include: innerTests() },
  programs: { include: ['test/support/install-programs.ts'] },
  installation: { include: ['test/support/install-clients.ts'] },
  quick: { include: quickTests() },
}

/** Tests with processes and sockets, in one run: those that can share loaded modules, the others, and those that need the source. */
function projectsOf(isMember: (path: string) => boolean, rest: { readonly include: string[]; readonly exclude: string[] }) {
  const [sharing, replacing] = [sharingTests().filter(isMember), replacingTests().filter(isMember)]
  const alone = { include: rest.include, exclude: [...rest.exclude, ...innerTests(), ...sharing, ...replacing] }
  return [
    { extends: true as const, plugins, test: { name: 'sharing', include: sharing, isolate: false } },
    { extends: true as const, plugins, test: { name: 'alone', ...alone } },
    ...(replacing.length > 0 ? [{ extends: true as const, test: { name: 'replacing', include: replacing } }] : []),
  ]
}

const isClient = (path: string) => path.startsWith('test/face/')
const projects: Readonly<Record<string, ReturnType<typeof projectsOf>>> = {
  outer: projectsOf(path => !isClient(path), { include: [everything], exclude: [clients] }),
  clients: projectsOf(isClient, { include: [clients], exclude: [] }),
}
const computes = group === 'inner' || group === 'quick'

function files() {
  if (group === undefined) return { include: [everything] }
  return group in projects ? { projects: projects[group]! } : groups[group]
}

export default defineConfig({
  ...(group === 'inner' && { plugins }),
  test: {
    ...files(),
    server: { deps: { external: [BUILT] } },
    setupFiles: [
      'test/support/cpu-times.ts',
      'test/support/left-running.ts',
      'test/support/property-seed.ts',
      ...(group === 'quick' ? ['test/support/quick.ts'] : []),
    ],
    pool: 'forks',
    // Half of the time of tests that only compute would go into loading the same modules for each file.
    isolate: group !== 'inner',
    // Tests that compute use both cores of a small machine. The others wait for processes and engines much of their time.
    maxWorkers: computes ? 2 : 3,
    ...(group === 'installation' && { maxConcurrency: 3 }),
    testTimeout: group === 'quick' ? QUICK_TIMEOUT : TEST_TIMEOUT,
    hookTimeout: TEST_TIMEOUT,
    expect: { poll: { timeout: EVENT_TIMEOUT } },
    coverage: { provider: 'v8', include: ['src/**/*.ts'], exclude: ['src/cli/**', 'src/dashboard/**'] },
  },
})
