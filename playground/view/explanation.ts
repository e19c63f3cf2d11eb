/** Says in sentences what the pointer is on: what its holder believes by its own clocks, and what the log says, in the words of `leasehold explain`. */
import { resourceSentences } from '../../src/cli/resource-sentences.ts'
import { inWords } from '../../src/duration.ts'
import type { Bar } from '../history.ts'
import { LOCK, LOG, RESOURCE } from '../links.ts'
import type { Process } from '../process.ts'
import { RESOURCE_NAME, resourceOf } from '../programs.ts'
import type { PlaygroundWorld } from '../world.ts'
import type { Pointed } from './pointed.ts'

export async function explain(world: PlaygroundWorld, pointed: Pointed): Promise<readonly string[]> {
  if (pointed.kind === 'message') {
    const { from, to, text, isLost, sentAt, arrivesAt } = pointed.message
    return [
      `${from} → ${to}: ${text}.`,
      isLost ? 'The message is lost.' : `Sent at ${inWords(sentAt)}, under way for ${inWords(arrivesAt - sentAt)}.`,
    ]
  }
  if (pointed.kind === 'mark') return [`${pointed.mark.text}.`]
  if (pointed.kind === 'lane') return explainLane(world, pointed.name)
  return explainBar(world, pointed.bar)
}

async function explainBar(world: PlaygroundWorld, bar: Bar): Promise<readonly string[]> {
  const { now } = world
  if (bar.side === 'plain') return explainPlain(world, bar)
  if (bar.state === 'waiting') {
    const waits = bar.ended === undefined ? 'waits' : 'waited'
    return [
      `${bar.lane} ${waits} for ${bar.label}, ${inWords((bar.ended ?? now) - bar.from)}.`,
      ...(bar.ended === undefined ? await fromTheLog(world) : []),
    ]
  }
  if (bar.ended !== undefined)
    return [`${bar.lane} held ${bar.label} for ${inWords(Math.min(bar.ended, bar.deadline) - bar.from)}: ${bar.how}.`]
  const left = Math.max(0, bar.deadline - now)
  const own =
    left > 0
      ? `By its own clock, ${bar.lane} holds lease ${bar.lease} for another ${inWords(left)}; unless a renewal is answered, it stops then.`
      : `By its own clock, the lease of ${bar.lane} is over. The process stands still, and learns it when it runs again.`
  return [own, ...(await fromTheLog(world))]
}

function explainPlain(world: PlaygroundWorld, bar: Bar): readonly string[] {
  const held = bar.state === 'held' ? 'holds the plain lock' : 'asks for the plain lock again and again'
  const { key } = world.server
  const server =
    key === undefined
      ? 'The server has no key.'
      : `The server says: held by ${key.value.split(':')[0]}, for another ${inWords(key.until - world.now)}.`
  const own = bar.ended === undefined ? `${bar.lane} ${held}, as far as it knows.` : `${bar.lane} ${held} no more: ${bar.how}.`
  return [own, server]
}

async function explainLane(world: PlaygroundWorld, name: string): Promise<readonly string[]> {
  if (name === LOG) return ['The log that all replicas share. It stores records and never interprets them.', ...(await fromTheLog(world))]
  if (name === LOCK) return ['A plain lock: a short model of SET NX PX on one server, for comparison. It is not part of Leasehold.']
  if (name === RESOURCE)
    return [
      `${RESOURCE_NAME}: the upper row receives writes under the lease, the lower row those under the plain lock.`,
      world.settings.fencing === 1
        ? 'It refuses a write whose token is older than one it has seen.'
        : 'Fencing is off: it accepts every write.',
    ]
  const process = world.processes.find(process => process.name === name)
  if (process === undefined) return []
  const { machine } = process
  const rate = (machine.rate - 1) * 100
  return [`Process ${name}. Its clock runs ${Math.abs(rate).toFixed(2)} % ${rate < 0 ? 'slow' : 'fast'}.`, ...(await fromTheLog(world))]
}

/** As `leasehold explain` says it, by the replica of a process that runs. */
async function fromTheLog(world: PlaygroundWorld): Promise<readonly string[]> {
  const reader = world.processes.find(({ replica, machine }: Process) => replica !== undefined && machine.stalledSince === undefined)
  const replica = reader?.replica
  if (reader === undefined || replica === undefined) return ['No process can read the log now.']
  try {
    const name = resourceOf(world.program)
    const [resource, summary, history] = await Promise.all([
      replica.read({ kind: 'resource', resource: name }),
      replica.read({ kind: 'summary' }),
      replica.read({ kind: 'history', resource: name }),
    ])
    const facts = { resource: resource.value, summary: summary.value, history: history.value, now: reader.machine.clock().wall() }
    return [`The replica of ${reader.name} says: ${resourceSentences(facts).join(' ')}`]
  } catch {
    return ['No process can read the log now.']
  }
}
