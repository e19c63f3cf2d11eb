// Benchmark of discovery: a pick and a list from the cache of a process, a filtered list of 100,000 instances in a server, and the cost of a heartbeat.
import { connect } from '../dist/index.js'
import { Directory } from '../dist/registry/directory.js'
import { atMost } from './row.mjs'

/** Instances of each service. */
const EACH = 100

/** Services with 100 instances each. Every instance has the capability of all, and one that only its service has. */
function entries(services) {
  return Array.from({ length: services * EACH }, (_, i) => ({
    key: `services/s${i % services}/i${i}`,
    value: JSON.stringify({
      addresses: [`http://10.0.${i % 256}.1:8080`],
      capabilities: ['all', `c${i % services}`],
      tags: ['blue'],
      zone: `eu/${i % 3}`,
    }),
    ...{ lease: i + 1, holder: `h${i}`, incarnation: 1, status: 'live', revision: i, generation: 0, suppressed: false, remaining: 1 },
  }))
}

/** Microseconds per call, over `times` calls. */
function each(times, run) {
  for (let i = 0; i < times / 10; i++) run(i)
  const began = process.hrtime.bigint()
  for (let i = 0; i < times; i++) run(i)
  return Number(process.hrtime.bigint() - began) / 1e3 / times
}

export async function registry(report, { quick }) {
  const services = quick ? 200 : 1_000
  const registrations = quick ? 2_000 : 20_000
  const [all, registered] = [services * EACH, registrations].map(count => count.toLocaleString('en'))
  const row = (name, value, unit, want) => report({ name, value, unit, want })
  const directory = new Directory()
  const loaded = entries(services)
  let began = process.hrtime.bigint()
  directory.load(loaded, 1)
  row(`load ${all} instances`, Number(process.hrtime.bigint() - began) / 1e6, 'ms')
  row(`list 100 of ${all} by service`, each(200, () => directory.list({ service: 's7' })) / 1e3, 'ms', atMost(5))
  const rare = { capabilities: { all: ['all', 'c7'] }, tag: 'blue', zone: 'eu/1', status: 'passing' }
  row(`list 100 of ${all} by capabilities, tag, zone and status`, each(200, () => directory.list(rare)) / 1e3, 'ms', atMost(5))
  const view = directory.view({ service: 's7' }, Math.random)
  for (const strategy of ['round-robin', 'weighted', 'least-loaded', 'two-choices', 'hash'])
    row(
      `pick one of 100: ${strategy}`,
      each(200_000, i => view.pick({ strategy, key: `user-${i & 1_023}` })),
      'µs',
      atMost(5),
    )
  const change = i =>
    directory.apply([
      {
        revision: i,
        type: 'put',
        key: `services/s${i % services}/i${i % loaded.length}/state`,
        value: `{"status":"passing","load":${i % 7}}`,
        lease: (i % loaded.length) + 1,
        at: 0,
      },
    ])
  row('a change of load', each(quick ? 20_000 : 100_000, change), 'µs')

  const leases = await connect('memory:bench-registry')
  try {
    began = process.hrtime.bigint()
    for (let at = 0; at < registrations; at += 500)
      await Promise.all(
        Array.from({ length: 500 }, (_, i) => leases.registry.register({ service: `s${i % 10}`, instance: `${at + i}`, address: 'a:1' })),
      )
    row('register, 500 at a time', registrations / (Number(process.hrtime.bigint() - began) / 1e9), 'instances/s')
    const found = await leases.registry.discover({ service: 's7' }).ready()
    row(
      `pick from the cache of a process, one of ${(registrations / 10).toLocaleString('en')}`,
      each(200_000, () => found.pickNow()),
      'µs',
      atMost(5),
    )
    began = process.hrtime.bigint()
    for (let i = 0; i < 50_000; i++) await found.pick()
    row('the same, awaited', Number(process.hrtime.bigint() - began) / 1e3 / 50_000, 'µs', atMost(5))
    const asked = []
    for (let i = 0; i < 50; i++) {
      const at = process.hrtime.bigint()
      await leases.read({ kind: 'entries', prefix: `services/s${i % 10}/${i}` })
      asked.push(Number(process.hrtime.bigint() - at) / 1e6)
    }
    row(`one entry among ${registered} by its key, from the state`, asked.sort((a, b) => a - b)[25], 'ms')
  } finally {
    await leases[Symbol.asyncDispose]()
  }
}
