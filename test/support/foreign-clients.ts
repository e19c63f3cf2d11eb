/**
 * Other people's clients for tests, in pinned versions: installed once into the cache of this user, not into the repository. Where they cannot be installed the
 * tests skip with a warning, or fail if CI=true.
 */
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { type AddressInfo, connect, createServer } from 'node:net'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { EVENT_TIMEOUT } from './bounds.ts'
import { downloading } from './certificates.ts'
import { folderLock } from './folder-lock.ts'

const run = promisify(execFile)
const CACHE = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'leasehold-test-clients')
/** The first build of Kubernetes' packages takes five minutes of one core; later ones find them in the cache of Go. On a busy machine an installation by pip took as long. */
const TIMEOUT = 1_200_000
/** One that is missing fails the installation, and `orSkip` says so. */
const PYTHON = 'python3'
const GO = 'go'
const CARGO = 'cargo'
const MAVEN = 'mvn'
const JAVAC = 'javac'
/** Runs what `javaClients` compiled. */
export const JAVA = 'java'
/** Without the settings of the npm that runs the tests: they name the folder of the repository. */
const ENVIRONMENT = Object.fromEntries(Object.entries(downloading()).filter(([name]) => !/^npm_/i.test(name)))

/**
 * The folder of these packages. `install` runs once for each list of packages, whichever test needs it first; others wait for it. One that did not finish is begun
 * again in an empty folder. (It is not renamed when it is whole: Python's environments contain their path.)
 */
async function installed(kind: string, packages: readonly string[], install: (folder: string) => Promise<unknown>): Promise<string> {
  const folder = join(CACHE, `${kind}-${createHash('sha256').update(packages.join(' ')).digest('hex').slice(0, 12)}`)
  const marker = join(folder, 'installed')
  if (existsSync(marker)) return folder
  await using _lock = await folderLock(`${folder}.lock`)
  if (existsSync(marker)) return folder
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  await install(folder)
  writeFileSync(marker, `${packages.join('\n')}\n`)
  return folder
}

/** Loads packages of npm, such as `redlock@4.2.0` or `redlock5@npm:redlock@5.0.0-beta.2`. */
export async function nodeClients(...packages: readonly string[]): Promise<NodeJS.Require> {
  const folder = await installed('node', packages, async place => {
    writeFileSync(join(place, 'package.json'), '{"private":true}')
    await run('npm', ['install', '--ignore-scripts', '--no-audit', '--no-fund', ...packages], {
      cwd: place,
      timeout: TIMEOUT,
      env: ENVIRONMENT,
    })
  })
  return createRequire(join(folder, 'package.json'))
}

/** The Python of a virtual environment with these packages, such as `redis==5.2.1`. */
export async function pythonClients(...packages: readonly string[]): Promise<string> {
  const folder = await installed('python', packages, async place => {
    await run(PYTHON, ['-m', 'venv', join(place, 'venv')], { timeout: TIMEOUT })
    await run(join(place, 'venv/bin/pip'), ['install', '--quiet', ...packages], { timeout: TIMEOUT })
  })
  return join(folder, 'venv/bin/python')
}

/** Runs a Python program; returns what it printed. */
export async function python(interpreter: string, program: string, ...args: readonly string[]): Promise<string> {
  const { stdout } = await run(interpreter, ['-c', program, ...args], { timeout: EVENT_TIMEOUT })
  return stdout
}

/**
 * The programs are run a few times and never debugged. Without C, without debug information and with more memory for the compiler they compile faster; without
 * optimizations (-N) and inlining (-l) in three quarters of that time.
 */
const GO_FLAGS = "-mod=mod '-gcflags=all=-N -l -dwarf=false' -ldflags=-w"
const GO_ENVIRONMENT = { ...ENVIRONMENT, GOGC: '400', CGO_ENABLED: '0', GOFLAGS: GO_FLAGS }

/**
 * A Go program, built with these modules, such as `github.com/bsm/redislock@v0.9.4`. Programs of others, such as `github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0`,
 * are built beside it under their names: with the same versions of all modules, so that what both need is compiled once.
 */
export async function goClients(program: string, ...names: readonly string[]): Promise<string> {
  const isProgram = (name: string) => name.includes('/cmd/')
  const [modules, others] = [names.filter(name => !isProgram(name)), names.filter(isProgram)]
  const folder = await installed('go', [...names, program], async place => {
    writeFileSync(join(place, 'go.mod'), 'module clients\n\ngo 1.24\n')
    writeFileSync(join(place, 'main.go'), program)
    for (const args of [
      ['get', ...modules],
      ...(others.length > 0 ? [['get', '-tool', ...others]] : []),
      ['mod', 'tidy'],
      ['build', '-o', `${place}/`, '.', ...others.map(name => name.replace(/@.*/, ''))],
    ])
      await run(GO, args, { cwd: place, timeout: TIMEOUT, maxBuffer: 16 << 20, env: GO_ENVIRONMENT })
  })
  return join(folder, 'clients')
}

/** The folder of a Go module as the proxy ships it, such as `github.com/bsm/redislock@v0.9.4`: with its tests. It is read-only. */
export async function goModule(module: string): Promise<string> {
  const { stdout } = await run(GO, ['mod', 'download', '-json', module], { timeout: TIMEOUT, env: ENVIRONMENT })
  return (JSON.parse(stdout) as { readonly Dir: string }).Dir
}

/**
 * The program of a Go module's own tests. `beside` are modules that its go.mod looks for in folders beside it, by the names of these; `files` are added to the
 * module.
 */
export async function goTests(
  module: string,
  {
    beside = {},
    files = {},
  }: { readonly beside?: Readonly<Record<string, string>>; readonly files?: Readonly<Record<string, string>> } = {},
): Promise<string> {
  const folder = await installed('go-tests', [module, ...Object.values(beside), ...Object.values(files)], async place => {
    for (const [name, each] of Object.entries({ module, ...beside })) {
      await run('cp', ['-R', await goModule(each), join(place, name)])
      await run('chmod', ['-R', 'u+w', join(place, name)]) // modules are kept read-only
    }
    for (const [name, text] of Object.entries(files)) writeFileSync(join(place, 'module', name), text)
    const options = { cwd: join(place, 'module'), timeout: TIMEOUT, maxBuffer: 16 << 20, env: GO_ENVIRONMENT }
    await run(GO, ['test', '-c', '-o', join(place, 'tests'), '.'], options)
  })
  return join(folder, 'tests')
}

/** A Rust program, built with the crates that its manifest and its lock file name. */
export async function rustClients(program: string, manifest: string, lock: string): Promise<string> {
  const folder = await installed('rust', [program, manifest, lock], async place => {
    mkdirSync(join(place, 'src'), { recursive: true })
    writeFileSync(join(place, 'Cargo.toml'), manifest)
    writeFileSync(join(place, 'Cargo.lock'), lock)
    writeFileSync(join(place, 'src/main.rs'), program)
    const env = { ...ENVIRONMENT, CARGO_INCREMENTAL: '0' } // it is built once
    await run(CARGO, ['build', '--quiet', '--locked'], { cwd: place, timeout: TIMEOUT, maxBuffer: 16 << 20, env })
  })
  return join(folder, 'target/debug/clients')
}

/** The arguments of `java` to run the class of this program, compiled with these packages of Maven, such as `com.netflix.eureka:eureka-client:1.10.18`. */
export async function javaClients(program: string, ...packages: readonly string[]): Promise<readonly string[]> {
  const file = `${/\bclass (\w+)/.exec(program)![1]}.java`
  const folder = await installed('java', [...packages, program], async place => {
    const dependencies = packages.map(name => {
      const [group, artifact, version] = name.split(':')
      return `<dependency><groupId>${group}</groupId><artifactId>${artifact}</artifactId><version>${version}</version></dependency>`
    })
    const project = '<modelVersion>4.0.0</modelVersion><groupId>clients</groupId><artifactId>clients</artifactId><version>1</version>'
    writeFileSync(join(place, 'pom.xml'), `<project>${project}<dependencies>${dependencies.join('')}</dependencies></project>`)
    writeFileSync(join(place, file), program)
    const repository = `-Dmaven.repo.local=${join(CACHE, 'maven')}`
    // Two of Maven must not write into the repository at once.
    await using _lock = await folderLock(join(CACHE, 'maven.lock'))
    const copy = ['-q', '-B', repository, 'dependency:copy-dependencies', `-DoutputDirectory=${join(place, 'lib')}`]
    await run(MAVEN, copy, { cwd: place, timeout: TIMEOUT })
    await run(JAVAC, ['-cp', join(place, 'lib/*'), '-d', place, file], { cwd: place, timeout: TIMEOUT })
  })
  const opened = ['java.util', 'java.lang', 'java.lang.reflect', 'java.text'].flatMap(name => [
    '--add-opens',
    `java.base/${name}=ALL-UNNAMED`,
  ])
  return [...opened, '-cp', `${folder}:${join(folder, 'lib/*')}`]
}

/** Runs a program; returns what it printed. */
export async function output(program: string, ...args: readonly string[]): Promise<string> {
  try {
    return (await run(program, [...args], { timeout: EVENT_TIMEOUT })).stdout
  } catch (error) {
    throw new Error(`${(error as Error).message}\n${(error as { stdout?: string }).stdout ?? ''}`, { cause: error })
  }
}

/** Skips the test loudly, or fails where CI=true. */
export async function orSkip<T>(what: string, clients: Promise<T>, context: { skip(why: string): never }): Promise<T> {
  try {
    return await clients
  } catch (error) {
    if (process.env.CI === 'true') throw error
    console.warn(`NOT TESTED: ${what}: ${(error as Error).message.slice(0, 500)}`)
    return context.skip((error as Error).message)
  }
}

/**
 * The port that a client should use for a server on `port`: the same one, unless LEASEHOLD_RECORD is set. Then a proxy listens on another, and adds what the
 * client sends to the file, one distinct request a line, as latin1. Mutated recordings are the input of test/face/mutation.test.ts.
 */
export async function recorded(port: number, file: string): Promise<{ readonly port: number } & AsyncDisposable> {
  if (process.env.LEASEHOLD_RECORD === undefined) return { port, [Symbol.asyncDispose]: async () => {} }
  const known = new Set(existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean) : [])
  const shapes = new Set([...known].map(shapeOf))
  const server = createServer(near => {
    const far = connect({ host: '127.0.0.1', port })
    let request = ''
    const flush = () => {
      const line = JSON.stringify(request)
      request = ''
      if (line.length < 10 || line.length > 6_000 || known.size >= 150 || shapes.has(shapeOf(line))) return
      shapes.add(shapeOf(line))
      known.add(line)
    }
    near.on('data', bytes => {
      request += bytes.toString('latin1')
      far.write(bytes)
    })
    far.on('data', bytes => {
      flush()
      near.write(bytes)
    })
    for (const socket of [near, far]) {
      socket.on('error', () => {})
      socket.on('close', () => {
        near.destroy()
        far.destroy()
      })
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      server.close()
      writeFileSync(file, `${[...known].sort().join('\n')}\n`)
    },
  }
}

/** Returns what stays the same when a client sends the same kind of request again. */
function shapeOf(line: string): string {
  return line.replace(/[A-Za-z0-9+/=_-]{12,}/g, '#').replace(/\d+/g, '0')
}
