/**
 * Electors, operators and another client of Leasehold at the same time, with every order of their steps, crashes between them and time that passes: no two
 * of them ever lead together, and a crash never blocks a name for longer than a term.
 */
import { expect, test } from 'vitest'
import { turn } from '../../../src/clock.ts'
import { SAME_NAMES } from '../../../src/face/face.ts'
import { kubernetesFace } from '../../../src/face/kubernetes/kubernetes-face.ts'
import type { Command } from '../../../src/kernel/command.ts'
import type { Outcome } from '../../../src/kernel/outcome.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { Replica } from '../../../src/replica/replica.ts'
import { setFaceRules } from '../../../src/server/face-rules.ts'
import { MemoryLog, MemoryStore } from '../../../src/store/memory.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { Dice, SEED } from '../../support/resp-mutation.ts'
import { submitting } from '../../support/submitting.ts'

const RUNS = Number(process.env.LEASEHOLD_KUBERNETES_RUNS ?? 60)
const STEPS = 120
const DURATION = 15_000
/** How long client-go leads after its last answer: retry period and renew deadline, as it has them by default. */
const BELIEF = 12_000
const OBJECT = '/apis/coordination.k8s.io/v1/namespaces/team/leases/job'
const RESOURCE = 'kubernetes/team/job'

interface LeaseJson {
  metadata: Record<string, unknown>
  spec: Record<string, unknown>
}

/** A process whose proposals wait for their turn. */
class Actor {
  readonly name: string
  readonly #place: Place
  /** Takes the next step. Undefined: it is between requests. */
  #next: (() => Promise<void>) | undefined
  #paused: () => void = () => {}
  constructor(name: string, place: Place) {
    this.name = name
    this.#place = place
  }

  get idle(): boolean {
    return this.#next === undefined
  }

  /** Until when it believes that it leads, in ms of the clock. All requests of one identity know it. */
  set believes(until: number) {
    this.#place.beliefs.set(this.name, until)
  }

  resign(): void {
    this.believes = 0
    this.#place.resignations.set(this.name, this.resigned + 1)
  }

  get resigned(): number {
    return this.#place.resignations.get(this.name) ?? 0
  }

  get leads(): boolean {
    return (this.#place.beliefs.get(this.name) ?? 0) > this.#place.clock.now()
  }

  /** Starts a request, up to its first step. */
  start(request: (actor: Actor) => Promise<void>): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#paused = resolve
      request(this).then(() => {
        this.#next = undefined
        this.#paused()
      }, reject)
    })
  }

  step(): Promise<void> {
    return new Promise(resolve => {
      this.#paused = resolve
      void this.#next!()
    })
  }

  /** The process ends here: its request goes no further, and nothing that it knew is known any more. */
  crash(): void {
    this.#next = undefined
  }

  propose(command: Command): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      this.#next = async () => {
        await propose(this.#place.lessor, command).then(resolve, reject)
      }
      this.#paused()
    })
  }

  async ask(method: string, body?: object): Promise<{ readonly status: number; readonly json: LeaseJson }> {
    const { lessor, clock } = this.#place
    const path = method === 'POST' ? OBJECT.slice(0, OBJECT.lastIndexOf('/')) : OBJECT
    const bytes = Buffer.from(body === undefined ? '' : JSON.stringify(body))
    const answer = await kubernetesFace().http!.answer(
      {
        method,
        path,
        query: new URLSearchParams(),
        header: () => undefined,
        hasBody: body !== undefined,
        secure: false,
        body: async () => bytes,
      },
      {
        key: 0,
        lessor: {
          submit: submitting(command => this.propose(command)),
          read: (query, options) => lessor.read(query, options),
          watch: (prefix, options) => lessor.watch(prefix, options),
        },
        holder: this.name,
        clock,
        names: SAME_NAMES,
        signal: new AbortController().signal,
      },
    )
    return { status: answer.status, json: JSON.parse(answer.body as string) as LeaseJson }
  }
}

interface Place {
  readonly clock: ManualClock
  readonly lessor: Replica
  /** By identity. */
  readonly beliefs: Map<string, number>
  readonly resignations: Map<string, number>
}

async function place(seed: number): Promise<Place> {
  const clock = new ManualClock({ seed })
  const lessor = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
  await setFaceRules(lessor, [kubernetesFace()])
  return { clock, lessor, beliefs: new Map(), resignations: new Map() }
}

let attempts = 0

/** No two attempts of an elector have the same time: real ones have microseconds. */
function spec(holderIdentity: string, clock: ManualClock): object {
  const renewTime = new Date(clock.wall() + attempts++).toISOString()
  return { holderIdentity, leaseDurationSeconds: DURATION / 1_000, renewTime }
}

/** One attempt to lead, as electors make it. */
function campaign(clock: ManualClock): (actor: Actor) => Promise<void> {
  return async function campaigns(actor) {
    const { resigned } = actor
    const found = await actor.ask('GET')
    const body =
      found.status === 404
        ? { metadata: { name: 'job' }, spec: spec(actor.name, clock) }
        : { ...found.json, spec: { ...found.json.spec, ...spec(actor.name, clock) } }
    const { status } = await actor.ask(found.status === 404 ? 'POST' : 'PUT', body)
    // An answer to an attempt from before it resigned does not make it lead again.
    if (status < 300 && actor.resigned === resigned) actor.believes = clock.now() + BELIEF
  }
}

/** It has stopped leading, and gives the object up. */
async function resign(actor: Actor): Promise<void> {
  actor.resign()
  const found = await actor.ask('GET')
  if (found.status === 200 && found.json.spec.holderIdentity === actor.name)
    await actor.ask('PUT', { ...found.json, spec: { ...found.json.spec, holderIdentity: '' } })
}

async function label(actor: Actor): Promise<void> {
  const found = await actor.ask('GET')
  if (found.status === 200) await actor.ask('PUT', { ...found.json, metadata: { ...found.json.metadata, labels: { by: actor.name } } })
}

async function remove(actor: Actor): Promise<void> {
  await actor.ask('DELETE')
}

/** Another client of Leasehold holds the resource for a while. */
function holdDirectly(clock: ManualClock): (actor: Actor) => Promise<void> {
  return async function holds(actor) {
    const sent = clock.now()
    const outcome = await actor.propose({ kind: 'acquire', holder: actor.name, ttl: DURATION, wants: [{ resource: RESOURCE }] })
    if (outcome.kind !== 'granted') return
    actor.believes = sent + DURATION
    // It keeps the lease until its next step.
    await actor.propose({ kind: 'policy', prefix: 'elsewhere', rules: {} })
    actor.believes = 0
    await actor.propose({ kind: 'release', lease: outcome.lease })
  }
}

test('no two of them lead together, whatever the order of their steps', async () => {
  let led = 0
  let crashes = 0
  for (let run = 0; run < RUNS; run++) {
    const dice = new Dice(SEED + run)
    const here = await place(run)
    const { clock, lessor } = here
    const electors = ['ann', 'bob'].map(name => new Actor(name, here))
    // A second request of the same identity at the same time, as after a timeout.
    const twin = new Actor('ann', here)
    const operator = new Actor('operator', here)
    const direct = new Actor('typescript', here)
    const actors = [...electors, twin, operator, direct]
    const history: string[] = []
    for (let step = 0; step < STEPS; step++) {
      const actor = dice.of(actors)
      const choice = dice.below(20)
      if (choice === 0) {
        const ms = 1 + dice.below(9_000)
        history.push(`${ms} ms pass`)
        await clock.advance(ms)
      } else if (choice === 1 && !actor.idle) {
        history.push(`${actor.name} crashes`)
        crashes++
        actor.crash()
      } else if (!actor.idle) {
        history.push(`${actor.name} goes on`)
        await actor.step()
      } else {
        const what =
          actor === operator
            ? dice.of([label, label, remove])
            : actor === direct
              ? holdDirectly(clock)
              : dice.below(4) === 0
                ? resign
                : campaign(clock)
        history.push(`${actor.name} begins ${what.name}`)
        await actor.start(what)
      }
      const leaders = new Set(actors.filter(({ leads }) => leads).map(({ name }) => name))
      if (leaders.size > 0) led++
      expect([...leaders].length, `seed ${SEED}, run ${run}: ${[...leaders]} lead together after\n${history.join('\n')}`).toBeLessThan(2)
    }
    await lessor[Symbol.asyncDispose]()
  }
  expect(led).toBeGreaterThan(RUNS)
  expect(crashes).toBeGreaterThan(RUNS / 4)
})

test('wherever a request ends, another leads after at most one term, and the same identity at once or after that', async () => {
  for (const [what, others] of [
    ['campaign', 3],
    ['renew', 3],
    ['resign', 3],
    ['remove', 3],
  ] as const)
    for (let after = 0; after < others; after++) {
      const here = await place(1)
      const { clock, lessor } = here
      const ann = new Actor('ann', here)
      if (what !== 'campaign') {
        await ann.start(campaign(clock))
        await finish(ann)
        expect(ann.leads).toBe(true)
        await clock.advance(2_000)
      }
      await ann.start(what === 'resign' ? resign : what === 'remove' ? remove : campaign(clock))
      for (let step = 0; step < after && !ann.idle; step++) await ann.step()
      ann.crash()
      await clock.advance(DURATION + 100)
      const bob = new Actor('bob', here)
      await bob.start(campaign(clock))
      await finish(bob)
      expect([what, after, bob.leads]).toEqual([what, after, true])
      await turn()
      await lessor[Symbol.asyncDispose]()
    }
})

async function finish(actor: Actor): Promise<void> {
  while (!actor.idle) await actor.step()
}

async function holders({ lessor }: Place): Promise<readonly string[]> {
  return (await lessor.read({ kind: 'resource', resource: RESOURCE })).value.grants.map(({ holder }) => holder)
}

test('a claim that took long has its whole term from its answer on', async () => {
  const here = await place(1)
  const ann = new Actor('ann', here)
  await ann.start(campaign(here.clock))
  await ann.step()
  expect(await holders(here)).toEqual(['ann'])
  await here.clock.advance(DURATION - 500)
  await finish(ann)
  expect(ann.leads).toBe(true)
  await here.clock.advance(BELIEF)
  expect(await holders(here)).toEqual(['ann'])
  await here.lessor[Symbol.asyncDispose]()
})

test('a claim whose lease ended before the object was written is refused, and the object does not name it', async () => {
  const here = await place(1)
  const [ann, direct] = [new Actor('ann', here), new Actor('typescript', here)]
  await ann.start(campaign(here.clock))
  await ann.step()
  await here.clock.advance(DURATION + 100)
  await direct.start(holdDirectly(here.clock))
  await direct.step()
  expect(await holders(here)).toEqual(['typescript'])
  await finish(ann)
  expect(ann.leads).toBe(false)
  expect((await ann.ask('GET')).status).toBe(404)
  await here.lessor[Symbol.asyncDispose]()
})

test('a claim between the two steps of giving up does not rely on the lease that is about to be released', async () => {
  const here = await place(1)
  const [ann, again] = [new Actor('ann', here), new Actor('ann', here)]
  await ann.start(campaign(here.clock))
  await finish(ann)
  await ann.start(resign)
  await ann.step()
  await again.start(campaign(here.clock))
  await finish(again)
  await finish(ann)
  expect([again.leads, await holders(here)]).toEqual([false, []])
  await again.start(campaign(here.clock))
  await finish(again)
  expect([again.leads, await holders(here)]).toEqual([true, ['ann']])
  await here.lessor[Symbol.asyncDispose]()
})
