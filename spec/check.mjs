// Searches every model in this folder in full, and every broken variant until it breaks.
//
//   node spec/check.mjs [--json] [model…]
//
// What to search stands in the head of each model, in lines that people read too:
//
//   holds    [-DNAME…]  STATES  sentence    no assertion can fail, and the search met exactly this many states
//   breaks   -DNAME…            sentence    a mistake: the search must find where it leads
//   reaches  -DNAME…            sentence    a state without which the promise would be empty: the search must get there
//
// Exit code 0: all as written. 1: a model errs, a variant passes, or a search was not complete. 3: there is no spin here.

import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { copyFile, mkdir, mkdtemp, readdir, readFile, rename, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const folder = fileURLToPath(new URL('.', import.meta.url))
/** Compiled searches of earlier runs. */
const KEPT = fileURLToPath(new URL('../node_modules/.cache/leasehold-spec', import.meta.url))

/** How a search of many states is compiled, and one of fewer, for which optimizing takes longer than searching. */
const OPTIMIZED = ['gcc', '-O1']
let quick = ['tcc']
const MANY = 300_000

/** Longest time for one search, ms: each takes a few seconds, so a longer one has become another model. */
const patience = 100_000

/** Runs a program to its end; a failure to start or a non-zero code is a value here, since the callers judge the output. */
function run(program, args, cwd) {
  return new Promise(resolve => {
    execFile(program, args, { cwd, timeout: patience, maxBuffer: 1 << 24 }, (error, stdout, stderr) => {
      resolve({ code: error ? (error.code ?? error.signal) : 0, output: `${stdout}${stderr}` })
    })
  })
}

/** The models here, each with the searches its head asks for. */
export async function models() {
  const files = (await readdir(folder)).filter(file => file.endsWith('.pml')).sort()
  return Promise.all(
    files.map(async file => {
      const text = await readFile(join(folder, file), 'utf8')
      const searches = parse(text.slice(0, text.indexOf('*/')))
      // A head that lost its lines would otherwise be a model that is never searched.
      for (const kind of ['holds', 'breaks', 'reaches'])
        if (!searches.some(search => search.kind === kind)) throw new Error(`${file}: its head has no line '${kind}'`)
      return { name: basename(file, '.pml'), searches }
    }),
  )
}

function parse(head) {
  const line = /^ +(holds|breaks|reaches)((?: +-D\w+(?:=\d+)?)*) +(?:([\d,]+) +)?(.*?)(?: \*\/)?$/gm
  return [...head.matchAll(line)].map(([, kind, flags, states, sentence]) => ({
    kind,
    flags: flags.split(' ').filter(Boolean),
    ...(kind === 'holds' && { states: Number(states?.replaceAll(',', '')) }),
    sentence: sentence.trim(),
  }))
}

/** Whether spin and a C compiler can be had; installs them where that is possible. Otherwise says why not. */
export async function prepare() {
  const missing = async () => {
    const found = await Promise.all([run('spin', ['-V']), run('gcc', ['--version']), run('tcc', ['-v'])])
    return ['spin', 'gcc libc6-dev', 'tcc'].filter((_, i) => found[i].code !== 0).flatMap(names => names.split(' '))
  }
  let names = await missing()
  if (names.length > 0 && process.getuid?.() === 0) {
    const install = () => run('apt-get', ['install', '-y', '--no-install-recommends', '-o', 'DPkg::Lock::Timeout=60', ...names])
    if ((await install()).code !== 0) {
      await run('apt-get', ['update'])
      await install()
    }
    names = await missing()
  }
  if (names.includes('tcc')) quick = ['gcc', '-O0']
  const needed = names.find(name => name !== 'tcc')
  return needed === undefined ? undefined : `cannot search the models: ${needed} is not here and could not be installed`
}

/** Runs one search. `wrong` is undefined when it went as the model's head says. */
export async function check(model, { kind, flags, states: stated }) {
  const work = await mkdtemp(join(tmpdir(), 'leasehold-spec-'))
  const began = process.hrtime.bigint()
  const result = (wrong, states = 0) => ({ wrong, states, seconds: Number(process.hrtime.bigint() - began) / 1e9 })
  try {
    const generated = await run('spin', ['-a', ...flags, join(folder, `${model}.pml`)], work)
    if (generated.code !== 0) return result(`spin: ${generated.output}`)
    const { wrong, program } = await compiled(work, `${model}${flags.join('')}`, stated > MANY ? OPTIMIZED : quick)
    if (wrong !== undefined) return result(wrong)
    // A planted mistake is found within a few states. A full search needs more room, and clearing that takes longer than such a short one.
    const { code, output } = await run(program, kind === 'holds' ? ['-m2000000', '-w22'] : ['-m200000', '-w18'], work)
    const states = Number(/(\d+) states, stored/.exec(output)?.[1] ?? 0)
    return result(judge({ kind, stated, code, output, states }), states)
  } finally {
    await rm(work, { recursive: true, force: true })
  }
}

/**
 * The search that spin wrote into `work`, compiled. The program is kept for the next run, under a hash of all that it was made of: most models are the same then.
 */
export async function compiled(work, name, [compiler, ...optimization]) {
  // One process per model, so there is nothing to reduce, and the number of states does not depend on how it is reduced.
  const options = [...optimization, '-w', '-DSAFETY', '-DNOREDUCE', '-DMEMLIM=4000']
  const sources = await Promise.all(['c', 'h', 'm', 'b', 't', 'p'].map(part => readFile(join(work, `pan.${part}`))))
  const hash = createHash('sha256').update(`${options} ${(await run(compiler, ['-v'])).output}`)
  for (const source of sources) hash.update(source)
  const program = join(KEPT, `${name}-${compiler}-${hash.digest('hex').slice(0, 16)}`)
  if (existsSync(program)) return { program }
  const { code, output } = await run(compiler, [...options, '-o', 'pan', 'pan.c'], work)
  if (code !== 0) return { wrong: `${compiler}: ${output}` }
  await mkdir(KEPT, { recursive: true })
  for (const former of await readdir(KEPT)) if (former.startsWith(`${name}-${compiler}-`)) await rm(join(KEPT, former), { force: true })
  // Another run may look for the program meanwhile: it must find all of it or nothing.
  const copy = `${program}.${process.pid}`
  await copyFile(join(work, 'pan'), copy)
  await rename(copy, program)
  return { program }
}

function judge({ kind, stated, code, output, states }) {
  if (code !== 0) return `pan ended with ${code}: ${output.slice(0, 500)}`
  // An index out of bounds, a blocked step: spin counts them as errors too, but they are mistakes of the model, not the one it plants.
  const violated = /assertion violated (?!- )/.test(output) && !/invalid array index|invalid end state \(/.test(output)
  const errors = Number(/errors: (\d+)/.exec(output)?.[1] ?? Number.NaN)
  if (kind !== 'holds') {
    if (errors === 1 && violated) return undefined
    return kind === 'breaks' ? 'the mistake was not caught' : 'the state was not reached'
  }
  if (errors !== 0) return `an assertion fails: ${/^pan:1: .*/m.exec(output)?.[0] ?? output.slice(0, 500)}`
  if (/max search depth too small|out of memory|MEMLIM|Search not completed|Bit statespace/.test(output))
    return 'the search was not complete'
  if (states !== stated)
    return `met ${states.toLocaleString('en')} states where the head of the model says ${stated.toLocaleString('en')}: write the new number there`
  return undefined
}

async function main(args) {
  const json = args.includes('--json')
  const asked = args.filter(arg => arg !== '--json').map(arg => basename(arg, '.pml'))
  const all = await models()
  const unknown = asked.find(name => !all.some(model => model.name === name))
  if (unknown) {
    console.error(`no model ${unknown}; there are ${all.map(model => model.name).join(', ')}`)
    return 2
  }
  const unable = await prepare()
  if (unable) {
    console.error(`NOT CHECKED: ${unable}`)
    return 3
  }
  const rows = []
  for (const { name, searches } of all.filter(model => asked.length === 0 || asked.includes(model.name)))
    for (const search of searches) {
      const row = { model: name, ...search, ...(await check(name, search)) }
      rows.push(row)
      if (!json) console.log(line(row))
    }
  if (json) console.log(JSON.stringify(rows, undefined, 2))
  return rows.some(row => row.wrong) ? 1 : 0
}

function line({ model, kind, flags, sentence, states, seconds, wrong }) {
  const what = `${model.padEnd(8)} ${kind.padEnd(7)} ${flags.join(' ').padEnd(28)}`
  return `${wrong ? 'WRONG' : 'ok   '} ${what} ${states.toLocaleString('en').padStart(10)} states ${seconds.toFixed(1).padStart(5)} s  ${wrong ?? sentence}`
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = await main(process.argv.slice(2))
