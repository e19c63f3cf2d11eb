// Two hosts with two GPUs each, and three users with three jobs each. Hosts and users are separate processes of the command line that share one file.
// The GPUs do not exist: a command prints them as JSON, as `nvidia-smi` would on a real host.
//
//   node examples/gpu-lab.mjs
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const leasehold = fileURLToPath(new URL('../dist/cli/leasehold.js', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'gpu-lab-'))
const env = { ...process.env, LEASEHOLD_URL: `file:${join(folder, 'lab.db')}`, XDG_STATE_HOME: folder }
const journal = join(folder, 'journal')
writeFileSync(journal, '')

/** Runs a command to its end. */
function run(...words) {
  return promisify(execFile)(process.execPath, [leasehold, ...words], { env })
}

/** A host: offers its GPUs until it is killed. */
async function host(name) {
  const devices = [0, 1].map(index => ({ id: `${name}-gpu-${index}`, labels: { model: 'a100', mem: '40', index }, utilisation: 0 }))
  const discover = `echo '${JSON.stringify({ devices })}'`
  const words = ['pool', 'offer', 'gpus', '--discover', discover, '--host', name, '--interval', '1s', '--ttl', '5s', '--grace', '2s']
  const offering = spawn(process.execPath, [leasehold, ...words], { env, stdio: ['ignore', 'ignore', 'pipe'] })
  await new Promise((resolve, reject) => {
    offering.stderr.setEncoding('utf8').on('data', text => /offering/.test(text) && resolve())
    offering.once('exit', code => reject(new Error(`${name} ended with ${code}`)))
  })
  return offering
}

/** A user: three jobs, each on one GPU of any host. A job writes down when it begins and when it ends. */
async function user(name) {
  const job = `echo "begin $CUDA_VISIBLE_DEVICES" >> "${journal}"; sleep 0.2; echo "end $CUDA_VISIBLE_DEVICES" >> "${journal}"; echo $CUDA_VISIBLE_DEVICES`
  const words = ['pool', 'take', 'gpus', '--anywhere', '--account', name, '--match', 'mem>=40', '--expect', '1s', '--', 'sh', '-c', job]
  const jobs = [1, 2, 3].map(async number => {
    const { stdout } = await run(...words)
    console.log(`  ${name} runs job ${number} on ${stdout.trim().replace('-gpu-', '/gpu-')}`)
  })
  await Promise.all(jobs)
}

/** The journal has no GPU with two beginnings and no end between them. */
function usedTwice() {
  const busy = new Set()
  for (const line of readFileSync(journal, 'utf8').trim().split('\n')) {
    const [what, gpu] = line.split(' ')
    if (what === 'begin' && busy.has(gpu)) return true
    if (what === 'begin') busy.add(gpu)
    else busy.delete(gpu)
  }
  return false
}

async function members() {
  const { stdout } = await run('pool', 'ls', 'gpus', '--json')
  return stdout
    .trim()
    .split('\n')
    .filter(Boolean)
    .map(line => JSON.parse(line))
}

const hosts = [await host('lab-a'), await host('lab-b')]
try {
  console.log((await run('pool', 'ls', 'gpus')).stdout)
  await Promise.all(['ann', 'ben', 'cid'].map(user))
  if (usedTwice()) throw new Error('a GPU was used by two jobs at once')
  console.log('9 jobs done, and no GPU was used by two of them at once\n')

  await run('pool', 'take', 'gpus', '--anywhere', '-n', '5', '--', 'true').catch(error =>
    console.log(`5 GPUs were asked for: ${error.stderr.split('\n')[0]}\n`),
  )

  hosts[1].kill('SIGKILL')
  while ((await members()).length > 2);
  console.log(`lab-b was killed: ${(await members()).length} of 4 GPUs are left`)
} finally {
  // A killed process may still be writing until it has ended.
  await Promise.all(hosts.map(offering => offering.kill('SIGKILL') && once(offering, 'exit')))
  rmSync(folder, { recursive: true, force: true })
}
