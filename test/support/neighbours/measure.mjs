// Asks for every operation over a large state and prints, as JSON, how many steps the longest turn of the event loop took, what was answered, and how many steps
// a client with another key waited for a renewal meanwhile: `node --import ./counted.mjs measure.mjs '{"sizes":{…},"copies":5,"only":""}'`.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { TOOLS } from '../../../dist/mcp/tools.js'
import { ROUTES } from '../../../dist/server/http/routes.js'
import { COMMANDS } from '../../../dist/server/resp/commands.js'
import { NeighbourRig } from './rig.mjs'

const { sizes, copies, only = '' } = JSON.parse(process.argv[2])
const steps = globalThis.leaseholdSteps
/** Turns with fewer steps are idle. */
const IDLE = 200

const rig = await NeighbourRig.open(sizes)
const measured = []
for (const key of ['rich', 'poor'])
  for (const [index, { part, name, way = '', refused = false }] of rig.operations(0).entries()) {
    if (!`${part} ${name} ${way}`.includes(only)) continue
    measured.push({ part, name, way, key, refused, ...(await measure(index, key)) })
  }

async function measure(index, key) {
  let over = false
  let [before, longest, turns] = [steps.count, 0, 0]
  const watch = async () => {
    while (!over) {
      await nextTurn()
      const taken = steps.count - before
      before = steps.count
      rig.isBusy = taken > IDLE
      longest = Math.max(longest, taken)
      turns++
    }
  }
  const watching = watch()
  // Each key asks for its own copies: what one of them has done is not there for the other.
  const first = key === 'rich' ? 0 : copies
  const asking = Array.from({ length: copies }, (_, i) => rig.ask(rig.operations(first + i)[index], key))
  const began = steps.count
  let waited = 0
  const renewal = { method: 'POST', target: `/v1/leases/${rig.ids.neighbour}/renew` }
  const renewed = rig.ask(renewal, 'neighbour', () => (waited = steps.count - began))
  const answers = await Promise.all(asking)
  const { status: renewedAs } = await renewed
  over = true
  await watching
  return {
    longest: Math.round(longest),
    waited: Math.round(waited),
    turns,
    renewedAs,
    status: answers[0].status,
    text: answers[0].text.slice(0, 300),
  }
}

const named = (part, names) => names.map(name => `${part} ${name}`)
/** The operations in the tables of the server. */
const known = [
  ...named(
    'http',
    ROUTES.map(({ method, path }) => `${method} ${path}`),
  ),
  ...named('resp', [...COMMANDS.keys(), ...rig.context.faces.flatMap(({ commands = [] }) => commands.map(({ name }) => name))]),
  ...named('tool', Object.keys(TOOLS)),
  ...rig.context.faces.flatMap(({ name, http }) => named(name, http?.operations ?? [])),
]
process.stdout.write(JSON.stringify({ measured, known, routes: rig.routes.map(({ path }) => path) }), () => process.exit(0))
