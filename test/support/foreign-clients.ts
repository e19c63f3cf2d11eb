/**
 * Other people's clients for tests, in pinned versions: installed once into the cache of this user, not into the repository. Where they cannot be installed the
 * tests skip with a warning, or fail if CI=true.
 */
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const CACHE = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'leasehold-test-clients')
const TIMEOUT = 240_000
/** One that is missing fails the installation, and `orSkip` says so. */
const PYTHON = 'python3'
const GO = 'go'
const MAVEN = 'mvn'
const JAVAC = 'javac'
/** Without the settings of the npm that runs the tests: they name the folder of the repository. */
const ENVIRONMENT = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name)))

/** The folder of these packages. `install` runs once for each list of packages. */
async function installed(kind: string, packages: readonly string[], install: (folder: string) => Promise<unknown>): Promise<string> {
  const folder = join(CACHE, `${kind}-${createHash('sha256').update(packages.join(' ')).digest('hex').slice(0, 12)}`)
  const marker = join(folder, 'installed')
  if (existsSync(marker)) return folder
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
  const { stdout } = await run(interpreter, ['-c', program, ...args], { timeout: 60_000 })
  return stdout
}

/** A Go program, built with these modules, such as `github.com/bsm/redislock@v0.9.4`. */
export async function goClients(program: string, ...modules: readonly string[]): Promise<string> {
  const folder = await installed('go', [...modules, program], async place => {
    writeFileSync(join(place, 'go.mod'), 'module clients\n\ngo 1.24\n')
    writeFileSync(join(place, 'main.go'), program)
    for (const args of [
      ['get', ...modules],
      ['mod', 'tidy'],
      ['build', '-o', 'clients', '.'],
    ])
      await run(GO, args, { cwd: place, timeout: TIMEOUT, env: { ...ENVIRONMENT, GOFLAGS: '-mod=mod' } })
  })
  return join(folder, 'clients')
}

/** The arguments of `java` to run a class of one file, compiled with these packages of Maven, such as `com.netflix.eureka:eureka-client:1.10.18`. */
export async function javaClients(source: URL, ...packages: readonly string[]): Promise<readonly string[]> {
  const text = readFileSync(source, 'utf8')
  const folder = await installed('java', [...packages, text], async place => {
    const dependencies = packages.map(name => {
      const [group, artifact, version] = name.split(':')
      return `<dependency><groupId>${group}</groupId><artifactId>${artifact}</artifactId><version>${version}</version></dependency>`
    })
    const project = '<modelVersion>4.0.0</modelVersion><groupId>clients</groupId><artifactId>clients</artifactId><version>1</version>'
    writeFileSync(join(place, 'pom.xml'), `<project>${project}<dependencies>${dependencies.join('')}</dependencies></project>`)
    writeFileSync(join(place, 'Clients.java'), text)
    const repository = `-Dmaven.repo.local=${join(CACHE, 'maven')}`
    const copy = ['-q', '-B', repository, 'dependency:copy-dependencies', `-DoutputDirectory=${join(place, 'lib')}`]
    await run(MAVEN, copy, { cwd: place, timeout: TIMEOUT })
    await run(JAVAC, ['-cp', join(place, 'lib/*'), '-d', place, 'Clients.java'], { cwd: place, timeout: TIMEOUT })
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
    return (await run(program, [...args], { timeout: 60_000 })).stdout
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
