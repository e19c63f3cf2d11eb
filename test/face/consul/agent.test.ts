/** The agent of Consul finds services by their ID alone. */
import { expect, test } from 'vitest'
import { AgentIndex } from '../../../src/face/consul/agent.ts'
import { type FaceCaller, SAME_NAMES } from '../../../src/face/face.ts'
import { Registrations } from '../../../src/face/registrations.ts'
import { entryOf, registrationOf } from '../../../src/registry/entry.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'

/** A registry in which each value that is looked at counts. */
function registry() {
  let parsed = 0
  const entries = Array.from({ length: 100 }, (_, i) => {
    const { key, value } = entryOf(registrationOf({ service: `s${i % 10}`, instance: `i${i}` }))
    return {
      ...{ key, lease: i + 1, holder: 'h', incarnation: 1, status: 'live', revision: 1, created: 1, version: 1, generation: 0 },
      suppressed: false,
      get value() {
        parsed++
        return value
      },
    }
  })
  const read = async ({ prefix }: { prefix: string }) => ({
    revision: 1,
    value: entries.filter(({ key }) => key === prefix || key.startsWith(`${prefix}/`)),
  })
  const lessor = { read } as unknown as FaceCaller['lessor']
  const registrations = new Registrations({
    ...{ lessor, key: 0, holder: 'client', clock: new ManualClock(), names: SAME_NAMES, signal: new AbortController().signal },
  })
  return { registrations, parsed: () => parsed }
}

test('an ID that is unknown costs no look at a registration, and one that is known a look at its own', async () => {
  const { registrations, parsed } = registry()
  const index = new AgentIndex()
  for (const id of ['nope', 's1', 'i', '', 'state']) expect(await index.byService(registrations, id)).toBeUndefined()
  expect(parsed()).toBe(0)
  expect((await index.byService(registrations, 'i42'))?.instance).toMatchObject({ service: 's2', instance: 'i42' })
  expect(parsed()).toBeLessThan(5)
})
