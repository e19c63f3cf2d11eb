/**
 * Two builds of the same code that know different rules: the running one, and a copy that knows one more version. The copy is made by replacing
 * text, like a planted mistake, because the product has no switch for rules that do not exist yet.
 */
import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { applyBatch } from '../src/kernel/codec/batch.ts'
import { RULES } from '../src/kernel/state.ts'
import { Replica } from '../src/replica/replica.ts'
import { replaceOnce } from './replace-once.ts'

export interface Build {
  /** The highest version of the rules that it knows. */
  readonly rules: number
  readonly Replica: typeof Replica
  readonly applyBatch: typeof applyBatch
}

export const PRESENT: Build = { rules: RULES, Replica, applyBatch }

/** Versions up to the present one count tokens in steps of one. */
const BEFORE = RULES - 1

/** The change in the next version: tokens continue in steps of two. A replica that does not know the version soon has different tokens. */
const NEXT = [
  { file: 'src/kernel/state.js', find: `export const RULES = ${RULES};`, put: `export const RULES = ${RULES + 1};` },
  // In a fleet that is being upgraded, a log begins with the rules that every build knows.
  { file: 'src/kernel/codec/batch.js', find: 'rules: founding = RULES', put: 'rules: founding = RULES - 1' },
  {
    file: 'src/kernel/rule/queue.js',
    find: 'want.units, state.nextToken++',
    put: `want.units, (state.nextToken += state.rules - ${BEFORE}) - (state.rules - ${BEFORE})`,
  },
]

let next: Promise<Build> | undefined

/** Made once in a process, and deleted when the process exits. */
export function nextBuild(): Promise<Build> {
  next ??= make()
  return next
}

async function make(): Promise<Build> {
  if (import.meta.url.endsWith('.ts')) throw new Error('the next version of the rules is made from the build: use npm run sim')
  const built = fileURLToPath(new URL('../src/', import.meta.url))
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-next-'))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  for (const name of ['kernel', 'lessor', 'replica', ...readdirSync(built).filter(file => file.endsWith('.js'))])
    cpSync(join(built, name), join(folder, 'src', name), { recursive: true })
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
  // Both builds must share one LeaseError class, or `instanceof` would fail across them.
  writeFileSync(join(folder, 'src/errors.js'), `export * from '${pathToFileURL(join(built, 'errors.js'))}'`)
  for (const { file, find, put } of NEXT) replaceOnce(join(folder, file), find, put)
  const load = (file: string) => import(pathToFileURL(join(folder, 'src', file)).href)
  const { Replica: NextReplica } = (await load('replica/replica.js')) as { Replica: typeof Replica }
  const { applyBatch: nextApply } = (await load('kernel/codec/batch.js')) as { applyBatch: typeof applyBatch }
  return { rules: RULES + 1, Replica: NextReplica, applyBatch: nextApply }
}
