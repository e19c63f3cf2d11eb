/** Every type that a public signature names can be imported from some entry of the package. */
import { describe, expect, test } from 'vitest'
import { declarationsOfEntries, exportsOf, isValue, namesIn, split } from '../support/declarations.ts'

/** Internal parameters of constructors that users do not call, and constants that only define a type. */
const internal = [
  'WorkerHeartbeat',
  'HeldLease',
  'DiscoveryFeed',
  'Registrar',
  'RegistrationKeeper',
  'RegistryContext',
  'Operations',
  'STATUSES',
  'STRATEGIES',
  'EVENT_TYPES',
  'REASONS',
  'VERBS',
  'Unit',
  // The method of a timer, not the function of that name.
  'keepAlive',
]
const exceptions: ReadonlySet<string> = new Set(internal)

describe('the package', () => {
  const entries = declarationsOfEntries()

  test('has the entries that are documented', () => {
    expect([...entries.keys()].sort()).toEqual(
      expect.arrayContaining([
        '.',
        './store',
        './store/etcd',
        './store/file',
        './store/memory',
        './store/postgres',
        './store/redis',
        './testing',
      ]),
    )
  })

  test('exports every type that a public signature names', () => {
    const exported = new Map<string, string>()
    for (const [entry, file] of entries) for (const [name, at] of exportsOf(file)) exported.set(at, `${entry} ${name}`)
    const missing = new Set<string>()
    for (const [at, by] of exported)
      for (const named of namesIn(at))
        if (!exported.has(named) && !exceptions.has(split(named).name)) missing.add(`${named} is named by ${by}`)
    expect([...missing].sort()).toEqual([])
  })

  test('exports only the contract from leasehold/store, and from each store its class and the types of its options', () => {
    const values = (entry: string) => [...exportsOf(entries.get(entry)!)].filter(([, at]) => isValue(at)).map(([name]) => name)
    expect(values('./store').sort()).toEqual(['LARGE_ANSWER', 'LeaseError', 'START'])
    expect(values('./store/memory').sort()).toEqual(['MemoryLog', 'MemoryStore'])
    for (const [entry, name] of Object.entries({ file: 'FileStore', postgres: 'PostgresStore', redis: 'RedisStore', etcd: 'EtcdStore' }))
      expect(values(`./store/${entry}`)).toEqual([name])
  })
})
