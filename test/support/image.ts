/**
 * Builds and runs a Dockerfile without a container engine: every step is carried out in a folder that stands for the root of the image, with the Node of its base.
 *
 * Knows the instructions that ops/docker/Dockerfile uses, and refuses others. Not shown: what only a kernel does for a container (its own root, network and
 * capabilities). Files outside the folders of the image, such as /bin/sh, are those of this machine.
 */
import { execFile } from 'node:child_process'
import { chmodSync, cpSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { downloading } from './certificates.ts'

const run = promisify(execFile)
/** Folders and files that the image has of its own. Their paths are moved below the root of the stage, wherever a step names them. */
const OWN = /(?<![\w./-])\/(?:(?:opt|var\/lib)\/leasehold\b|tmp\/leasehold-keys\b)/g
const TIMEOUT = 240_000

export interface Image {
  /** The folder that stands for `/`. */
  readonly root: string
  readonly env: Readonly<Record<string, string>>
  readonly user: { readonly uid: number; readonly gid: number }
  readonly entrypoint: readonly string[]
  readonly command: readonly string[]
  readonly healthcheck: readonly string[]
}

/** The instructions of a Dockerfile, in order. */
export function instructions(text: string): readonly (readonly [name: string, rest: string])[] {
  return text
    .split('\n')
    .filter(line => !/^\s*#/.test(line))
    .join('\n')
    .replace(/\\\n\s*/g, ' ')
    .split('\n')
    .filter(line => line.trim() !== '')
    .map(line => /^([A-Z]+)\s+(.*)$/.exec(line)?.slice(1) ?? [line, ''])
    .map(([name, rest]) => [name!, rest!] as const)
}

/** The version of Node in the base of the first stage, which is that of the others too (`imageBase` in scripts/sbom.mjs). */
export function nodeOf(text: string): number {
  const [, base] = instructions(text).find(([name]) => name === 'FROM')!
  return Number(/^node:(\d+)/.exec(base)![1])
}

/** Moves the paths of the image below `root`. */
export function inImage({ root }: Pick<Image, 'root'>, text: string): string {
  return text.replace(OWN, path => root + path)
}

/** Carries out the Dockerfile of `context`. `folder` gets one root for each stage. `node` is the binary of the base. */
export async function buildImage(context: string, folder: string, node: string): Promise<Image> {
  const path = `${dirname(node)}:${process.env.PATH}`
  const clean = Object.fromEntries(
    Object.entries(downloading()).filter(([name]) => !/^(npm_|LEASEHOLD_|NODE_(OPTIONS|ENV|PATH)$)/i.test(name)),
  )
  const stages = new Map<string, string>()
  let image = { root: '', env: {} as Record<string, string>, user: { uid: 0, gid: 0 } }
  const last = { entrypoint: [] as string[], command: [] as string[], healthcheck: [] as string[] }
  let cwd = '/'
  const list = (text: string) => JSON.parse(text) as string[]
  const steps: Readonly<Record<string, (rest: string) => void | Promise<void>>> = {
    FROM: rest => {
      const [, name] = /^\S+(?: AS (\w+))?$/.exec(rest)!
      image = { root: join(folder, `stage-${stages.size}`), env: {}, user: { uid: 0, gid: 0 } }
      stages.set(name ?? `${stages.size}`, image.root)
      mkdirSync(join(image.root, 'tmp'), { recursive: true })
      chmodSync(image.root, 0o755)
      chmodSync(join(image.root, 'tmp'), 0o1777)
      cwd = '/'
    },
    WORKDIR: rest => {
      cwd = rest
      mkdirSync(inImage(image, rest), { recursive: true })
    },
    COPY: rest => {
      const [, stage, from, to] = /^(?:--from=(\w+) )?(\S+(?: \S+)*) (\S+)$/.exec(rest)!
      const target = inImage(image, to!.startsWith('/') ? to! : join(cwd, to!))
      // Links stay what they are, also with a target that is relative.
      if (stage !== undefined)
        return cpSync(inImage({ root: stages.get(stage)! }, from!), target, { recursive: true, verbatimSymlinks: true })
      for (const source of from!.split(' ')) {
        const pattern = new RegExp(`^${source.replaceAll('.', '\\.').replaceAll('*', '.*')}$`)
        const found = readdirSync(context).filter(name => pattern.test(name))
        if (found.length !== 1) throw new Error(`COPY ${rest}: ${found.length} files match`)
        cpSync(join(context, found[0]!), to!.endsWith('/') ? join(target, found[0]!) : target)
      }
    },
    RUN: async rest => {
      await run('/bin/sh', ['-ec', inImage(image, rest)], {
        cwd: inImage(image, cwd),
        env: { ...clean, ...image.env, PATH: path },
        timeout: TIMEOUT,
      })
    },
    ENV: rest => {
      for (const [, name, value] of rest.matchAll(/(\w+)=(\S+)/g)) image.env[name!] = inImage(image, value!.replace('$PATH', path))
    },
    USER: rest => {
      const [uid, gid] = rest.split(':').map(Number)
      image.user = { uid: uid!, gid: gid! }
    },
    ENTRYPOINT: rest => {
      last.entrypoint = list(rest)
    },
    CMD: rest => {
      last.command = list(rest)
    },
    HEALTHCHECK: rest => {
      last.healthcheck = list(/ CMD (\[.*\])$/.exec(rest)![1]!)
    },
    LABEL: () => {},
    VOLUME: () => {},
    EXPOSE: () => {},
    STOPSIGNAL: () => {},
  }
  for (const [name, rest] of instructions(readFileSync(join(context, 'Dockerfile'), 'utf8'))) {
    if (steps[name] === undefined) throw new Error(`${name} ${rest}: this check does not know the instruction`)
    await steps[name](rest)
  }
  return { ...image, ...last }
}
