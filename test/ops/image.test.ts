/** The image and the compose file of ops/docker: built without a container engine, started as its user, and three servers on one Postgres as the compose file says. */
import { execFile } from 'node:child_process'
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { cp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { isSecret } from '../../src/server/key-secret.ts'
import { Place, type Running } from '../support/cli.ts'
import { hadolint, yamlParser } from '../support/client-sets.ts'
import { describeEngine, type Engine, engine } from '../support/engine.ts'
import { orSkip } from '../support/foreign-clients.ts'
import { buildImage, type Image, inImage, instructions, nodeOf } from '../support/image.ts'
import { otherNode } from '../support/kernel/other-node.ts'
import { packed } from '../support/packed.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const CONTEXT = join(root, 'ops/docker')
const dockerfile = readFileSync(join(CONTEXT, 'Dockerfile'), 'utf8')
const composeFile = readFileSync(join(CONTEXT, 'compose.yaml'), 'utf8')
const run = promisify(execFile)
const TIMEOUT = 300_000

interface Service {
  readonly image: string
  readonly command: readonly string[]
  readonly entrypoint?: readonly string[]
  readonly environment: Readonly<Record<string, string>>
  readonly depends_on: Readonly<Record<string, { readonly condition: string }>>
  readonly ports?: readonly string[]
  readonly read_only?: boolean
  readonly cap_drop?: readonly string[]
  readonly security_opt?: readonly string[]
}

interface Lockfile {
  readonly packages: Readonly<
    Record<string, { readonly version: string; readonly integrity: string; readonly resolved?: string; readonly dependencies?: object }>
  >
}

async function compose(context: { skip(why: string): never }): Promise<Readonly<Record<string, Service>>> {
  const yaml = (await orSkip('compose.yaml', yamlParser(), context))('yaml') as {
    parse(text: string, options: object): unknown
  }
  return (yaml.parse(composeFile, { merge: true }) as { readonly services: Record<string, Service> }).services
}

test('hadolint finds nothing wrong with the Dockerfile', async context => {
  const python = await orSkip('hadolint', hadolint(), context)
  await run(join(dirname(python), 'hadolint'), [join(CONTEXT, 'Dockerfile')])
  const broken = mkdtempSync(join(tmpdir(), 'leasehold-hadolint-'))
  writeFileSync(join(broken, 'Dockerfile'), dockerfile.replace('USER 10001:10001', 'USER root'))
  await expect(run(join(dirname(python), 'hadolint'), [join(broken, 'Dockerfile')])).rejects.toMatchObject({
    stdout: expect.stringContaining('DL3002'),
  })
  rmSync(broken, { recursive: true })
})

test('the drivers of the image are those that the tests use, to the last package and hash', () => {
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as Lockfile
  const image = JSON.parse(readFileSync(join(CONTEXT, 'package-lock.json'), 'utf8')) as Lockfile
  const { '': self, ...locked } = image.packages
  expect(JSON.parse(readFileSync(join(CONTEXT, 'package.json'), 'utf8'))).toMatchObject({ dependencies: self!.dependencies! })
  expect(Object.keys(self!.dependencies!)).toEqual(['pg', 'redis'])
  for (const [path, { version, integrity, resolved }] of Object.entries(locked))
    expect({ version, integrity, resolved }, path).toEqual({
      version: packages[path]!.version,
      integrity: packages[path]!.integrity,
      resolved: undefined,
    })
})

test('the image does not run as root, and its health check does not fail for a store that is down', () => {
  const names = instructions(dockerfile)
  expect(names.filter(([name]) => name === 'USER').at(-1)?.[1]).toMatch(/^[1-9]\d*:[1-9]\d*$/)
  const checks = names.filter(([name]) => name === 'HEALTHCHECK').map(([, rest]) => /\/\w+z\b/.exec(rest)?.[0])
  expect(checks).toEqual(['/healthz'])
})

test('the services of the compose file are three servers that cannot write to their root or gain privileges, reachable from this machine only', async context => {
  const services = await compose(context)
  const servers = Object.entries(services).filter(([name]) => /^leasehold-\d$/.test(name))
  expect(servers.map(([name]) => name)).toEqual(['leasehold-1', 'leasehold-2', 'leasehold-3'])
  for (const [, server] of [...servers, ['admin-key', services['admin-key']!] as const])
    expect(server).toMatchObject({ read_only: true, cap_drop: ['ALL'], security_opt: ['no-new-privileges:true'] })
  for (const [, { ports, depends_on }] of servers) {
    expect(ports).toEqual([expect.stringMatching(/^127\.0\.0\.1:743\d:7420$/)])
    expect(depends_on).toMatchObject({ 'admin-key': { condition: 'service_completed_successfully' } })
  }
})

const isRoot = process.getuid?.() === 0

describeEngine('postgres', 'the image', () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-image-'))
  let image: Image | undefined
  let postgres: Engine
  let missing: unknown

  beforeAll(async () => {
    if (!isRoot) return
    chmodSync(folder, 0o755) // the image's user must reach it
    let node: string
    try {
      node = await otherNode(nodeOf(dockerfile))
    } catch (error) {
      missing = error
      return
    }
    chmodSync(dirname(dirname(dirname(dirname(node)))), 0o755)
    const context = join(folder, 'context')
    await cp(CONTEXT, context, { recursive: true })
    const { tarball } = await packed()
    await cp(tarball, join(context, basename(tarball)))
    const [built, started] = await Promise.all([buildImage(context, folder, node), engine('postgres')])
    image = built
    postgres = started
  }, TIMEOUT)

  afterAll(async () => {
    await postgres?.[Symbol.asyncDispose]()
    rmSync(folder, { recursive: true, force: true })
  })

  const built = (context: { skip(why: string): never }): Image => {
    if (image !== undefined) return image
    const why = isRoot ? `there is no Node ${nodeOf(dockerfile)}: ${missing}` : 'only root can run a program as the user of the image'
    if (process.env.CI === 'true') throw new Error(why)
    console.warn(`NOT TESTED: the image: ${why}`)
    return context.skip(why)
  }

  /** Runs a command as the image's user, with its environment and nothing of ours. */
  const start = (here: Place, image: Image, command: readonly string[], env: Readonly<Record<string, string>> = {}): Running => {
    const { uid, gid } = image.user
    const words = command.map(word => inImage(image, word))
    const settings = Object.entries({ ...image.env, HOME: '/nonexistent', ...env }).map(([name, value]) => `${name}=${value}`)
    const as = [`--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', '--no-new-privs', '--bounding-set=-all']
    return here.spawn('setpriv', [...as, 'env', '-i', ...settings, ...words], { cwd: '/' })
  }

  test('its bill of materials lists every package in it and no other, besides those inside the bundles', async context => {
    const { root: place } = built(context)
    const opt = join(place, 'opt/leasehold')
    const { components } = JSON.parse(readFileSync(join(opt, 'sbom.cdx.json'), 'utf8')) as {
      components: readonly {
        readonly group?: string
        readonly name: string
        readonly version: string
        readonly purl: string
        readonly properties?: object
      }[]
    }
    const isFile = (path: string) => /^node_modules\/(?:(?:@[\w-]+\/)?[\w.-]+\/(?:node_modules\/)?)+package\.json$/.test(path)
    const installed = readdirSync(opt, { recursive: true, encoding: 'utf8' }).filter(
      path => isFile(path) && /node_modules\/(?:@[\w-]+\/)?[\w.-]+\/package\.json$/.test(path),
    )
    const present = installed.map(path => {
      const { name, version } = JSON.parse(readFileSync(join(opt, path), 'utf8')) as { name: string; version: string }
      return `${name}@${version}`
    })
    const listed = components.filter(({ purl, properties }) => purl.startsWith('pkg:npm/') && properties === undefined)
    expect(present.sort()).toEqual(
      listed.map(({ group, name, version }) => `${group === undefined ? '' : `${group}/`}${name}@${version}`).sort(),
    )
    expect(present).toEqual(expect.arrayContaining([expect.stringMatching(/^leasehold@/), expect.stringMatching(/^@redis\/client@/)]))
    const [, base] = instructions(dockerfile).find(([name]) => name === 'FROM')!
    const [, digest] = /@sha256:(\w+)/.exec(base)!
    expect(components.filter(({ purl }) => purl.startsWith('pkg:oci/'))).toMatchObject([{ hashes: [{ alg: 'SHA-256', content: digest }] }])
  })

  test('its entry point serves its store as its user, its health check passes, and fails when the server is gone', async context => {
    const image = built(context)
    await using here = new Place()
    const command = [...image.entrypoint, ...image.command].map(word => word.replace(':7420', ':0').replace(':7421', ':0'))
    const server = start(here, image, command)
    const [, port] = await server.printed(/probes: http:\/\/0\.0\.0\.0:(\d+)\//)
    const health = image.healthcheck.map(word => word.replace(':7421', `:${port}`))
    expect((await start(here, image, health).finished).code).toBe(0)
    server.process.kill('SIGTERM')
    expect((await server.finished).code).toBe(0)
    expect((await start(here, image, health).finished).code).toBe(1)
    // The next server on the same volume owns the same file.
    expect((await start(here, image, [...image.entrypoint, 'run', 'a', '--', 'true']).finished).code).toBe(0)
  })

  test('three servers on one Postgres start as the compose file says, share leases, and go on without one of them', async context => {
    const image = built(context)
    const services = await compose(context)
    await using here = new Place()
    const inCompose = (service: Service) => {
      const url = new URL(service.environment.LEASEHOLD_URL!.replace(/\$\{[^}]*\}/, 'password'))
      expect([url.protocol, url.hostname, url.pathname]).toEqual(['postgres:', 'postgres', '/leasehold'])
      return { LEASEHOLD_URL: postgres.url }
    }
    const { entrypoint, command, ...job } = services['admin-key']!
    const createKey = () => start(here, image, [...entrypoint!, ...command], inCompose({ command, ...job })).finished
    const created = await createKey()
    const secret = readFileSync(join(image.root, 'var/lib/leasehold/admin-key'), 'utf8').trim()
    expect(isSecret(secret)).toBe(true)
    expect(created).toMatchObject({ code: 0, stdout: '', stderr: expect.stringContaining('created key 1 (admin)') })
    expect(created.stderr).not.toContain(secret) // the log of the container
    expect(await createKey()).toMatchObject({ code: 0, stdout: '', stderr: '' }) // once
    const servers = ['leasehold-1', 'leasehold-2', 'leasehold-3'].map(name => {
      const words = services[name]!.command.map(word =>
        word === '0.0.0.0:7420' ? '0.0.0.0:0' : word === '0.0.0.0:7421' ? '127.0.0.1:0' : word,
      )
      return start(here, image, [...image.entrypoint, ...words], inCompose(services[name]!))
    })
    const ports = await Promise.all(servers.map(async server => (await server.printed(/http:\/\/127\.0\.0\.1:(\d+)\/\n/))[1]!))
    const probes = await Promise.all(servers.map(async server => (await server.printed(/probes: (http:\/\/[\d.:]+)/))[1]!))
    expect(await Promise.all(probes.map(async url => (await fetch(`${url}/readyz`)).status))).toEqual([200, 200, 200])
    const env = { LEASEHOLD_API_KEY: secret }
    const at = (i: number) => `leasehold://127.0.0.1:${ports[i]}`
    const all = `leasehold://${ports.map(port => `127.0.0.1:${port}`).join(',')}`
    const holder = here.start(
      ['run', 'jobs/nightly', '--store', all, '--ttl', '30s', '--', 'sh', '-c', 'echo held; read line; echo "$line"'],
      { env },
    )
    await holder.printed(/held/)
    const others = await Promise.all(
      [0, 1, 2].map(i => here.run(['run', 'jobs/nightly', '--no-wait', '--store', at(i), '--', 'true'], { env })),
    )
    expect(others.map(({ code }) => code)).toEqual([75, 75, 75])
    expect((await here.run(['ls', '--store', at(0)])).code).toBe(77) // a key is required
    servers[0]!.process.kill('SIGKILL')
    await servers[0]!.finished
    holder.process.stdin!.end('done\n')
    expect(await holder.finished).toMatchObject({ code: 0, stdout: 'held\ndone\n' })
    expect((await here.run(['run', 'jobs/nightly', '--store', all, '--', 'true'], { env })).code).toBe(0)
  })
})
