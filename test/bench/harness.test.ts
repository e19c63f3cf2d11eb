/** The benchmark's own arithmetic, table, arguments, chart and documents. What it measures is never tested here: figures depend on the machine. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, test } from 'vitest'

const bench = (name: string) => import(new URL(`../../bench/${name}.mjs`, import.meta.url).href)
const { rowOf, linesOf, median, verdict, atLeast, atMost, shown, oneLine } = await bench('row')
const { inRounds, microseconds } = await bench('rounds')
const { parseArguments } = await bench('arguments')
const { chart } = await bench('chart')
const { withBlock, numbersBlock } = await bench('document')
const { readResults, writeResults } = await bench('results')
const { throughput } = await bench('measure')
const root = fileURLToPath(new URL('../..', import.meta.url))

describe('a row', () => {
  test('has the median, the lowest and the highest of its rounds', () => {
    expect(rowOf({ name: 'n', unit: 'u', rounds: [3, 1, 2, 10] })).toMatchObject({ median: 2.5, lowest: 1, highest: 10, rounds: 4 })
    expect(median([5, 1, 3])).toBe(3)
    expect(() => median([])).toThrow()
  })

  test('compares its median with that of each peer, ours divided by theirs', () => {
    const { peers } = rowOf({ name: 'n', unit: 'u', rounds: [300, 100, 200], peers: [{ name: 'p', rounds: [50, 100, 200] }] })
    expect(peers[0].ratio).toBe(2)
  })

  test('compares a peer with our rounds beside its own, if there are such', () => {
    const { peers } = rowOf({ name: 'n', unit: 'u', rounds: [100, 900], peers: [{ name: 'p', rounds: [100], beside: [900] }] })
    expect(peers[0].ratio).toBe(9)
  })

  test('says met, not met or not measured of everything that is wanted', () => {
    const row = rowOf({
      name: 'n',
      unit: 'u',
      value: 30,
      want: atMost(29),
      peers: [
        { name: 'slow', value: 10, want: atLeast(3) },
        { name: 'fast', value: 11, want: atLeast(3) },
        { name: 'absent', failed: 'it is not installed', want: atLeast(3) },
        { name: 'other', value: 1 },
      ],
    })
    expect(row.verdict).toBe('not met')
    expect(row.peers.map((peer: { verdict?: string }) => peer.verdict)).toEqual(['met', 'not met', 'not measured', undefined])
    expect(verdict(atMost(2), 2)).toBe('met')
    expect(verdict(atLeast(2), 1.99)).toBe('not met')
  })

  test('judges by the processor time of both servers, where it is known', () => {
    const faster = { name: 'faster, with more work', value: 200, cpu: [8, 10, 12], want: atLeast(1) }
    const row = rowOf({ name: 'n', unit: 'pairs/s', value: 100, cpu: [5, 5, 5], peers: [faster, { ...faster, cpu: [], name: 'unknown' }] })
    expect(row.peers[0]).toMatchObject({ ratio: 0.5, cpu: 10, cpuRatio: 2, verdict: 'met' })
    expect(row.peers[1]).toMatchObject({ ratio: 0.5, verdict: 'not met' })
    expect(linesOf(row)[1]).toContain('CPU 10 µs (2.00 ×)')
    const times = rowOf({ name: 'n', unit: 'µs', value: 10, cpu: [30], peers: [{ ...faster, value: 20, want: atMost(1) }] })
    expect(times.peers[0]).toMatchObject({ ratio: 0.5, cpuRatio: 3, verdict: 'not met' })
  })

  test('that could not be measured says why, and has no ratio and no verdict of success', () => {
    const row = rowOf({ name: 'n', unit: 'u', failed: 'no disk', want: atLeast(0), peers: [{ name: 'p', value: 1, want: atLeast(0) }] })
    expect(row).toMatchObject({ failed: 'no disk', verdict: 'not measured' })
    expect(row.peers[0]).toMatchObject({ verdict: 'not measured' })
    expect(row.peers[0].ratio).toBeUndefined()
    expect(rowOf({ name: 'n', unit: 'u', value: Number.NaN }).failed).toContain('NaN')
    expect(rowOf({ name: 'n', unit: 'u' }).failed).toBe('no round was measured')
  })

  test('is printed with the peers below it, the ratio wanted and the ratio reached', () => {
    const [ours, peer, absent] = linesOf(
      rowOf({
        name: 'pairs',
        unit: 'pairs/s',
        rounds: [41_000, 43_000],
        peers: [
          { name: 'Redis', value: 21_000, want: atLeast(3) },
          { name: 'Consul', failed: 'it is not installed\nsecond line' },
        ],
      }),
    )
    expect(ours).toMatch(/^pairs +42,000 pairs\/s +41,000 to 43,000$/)
    expect(peer).toMatch(/^ {2}Redis +21,000 pairs\/s +ours is 2\.00 × {2}wanted ≥ 3 ×: NOT MET$/)
    expect(absent).toMatch(/^ {2}Consul +not measured: it is not installed$/)
  })

  test('shows numbers with the digits that count', () => {
    expect([0, 0.123, 12.34, 123.4, 1_234.5, -5.5].map(shown)).toEqual(['0', '0.12', '12.3', '123', '1,235', '-5.50'])
    expect(oneLine(`\n  ${'x'.repeat(1_000)}`)).toHaveLength(300)
  })
})

describe('rounds', () => {
  test('take turns: each peer, and ours after each of them', async () => {
    const turns: string[] = []
    const measure = async ({ name }: { name: string }) => {
      turns.push(name)
      return 1
    }
    const figures = await inRounds({ name: 'ours' }, [{ name: 'a' }, { name: 'b' }], { rounds: 2, measure, warmUp: async () => {} })
    expect(turns).toEqual(['a', 'ours', 'b', 'ours', 'a', 'ours', 'b', 'ours'])
    expect(figures.rounds).toHaveLength(4)
    expect(figures.peers[0]).toMatchObject({ rounds: [1, 1], beside: [1, 1] })
  })

  test('measure the processor time of a server for each operation', async () => {
    const measure = async () => {
      for (const began = process.cpuUsage(); process.cpuUsage(began).user < 100_000; );
      return { value: 1, count: 100 }
    }
    const figures = await inRounds({ pids: [process.pid] }, [{ name: 'idle' }], { rounds: 1, measure, warmUp: async () => {} })
    expect(figures.cpu).toHaveLength(process.platform === 'linux' ? 1 : 0)
    // 100 ms for 100 operations, of which the system reports hundredths of a second.
    for (const each of figures.cpu) expect(each).toBeGreaterThan(800)
    expect(figures.peers[0].cpu).toEqual([])
  })

  test('go on without a peer that fails, that did not start or that is stuck, and say why', async () => {
    let calls = 0
    const measure = ({ name }: { name: string }) => {
      if (name === 'stuck') return new Promise(() => {})
      if (name === 'fails' && ++calls > 1) return Promise.reject(new Error('connection lost'))
      return Promise.resolve(2)
    }
    const peers = [{ name: 'fails' }, { name: 'stuck' }, { name: 'absent', failed: 'it is not installed' }, { name: 'well' }]
    const figures = await inRounds({ name: 'ours' }, peers, { rounds: 2, measure, stuckAfter: 50 })
    const row = rowOf({ name: 'n', unit: 'u', ...figures })
    expect(row.failed).toBeUndefined()
    expect(row.peers.map((peer: { failed?: string }) => peer.failed)).toEqual([
      'connection lost',
      'no result after 0.05 s',
      'it is not installed',
      undefined,
    ])
    expect(row.peers[3].ratio).toBe(1)
  })

  test('ask a slow peer once, and the others in every round', async () => {
    let time = 0
    const measure = async ({ name }: { name: string }) => {
      time += name === 'slow' ? 5_000 : 100
      return 1
    }
    const peers = [{ name: 'slow' }, { name: 'fast' }]
    const figures = await inRounds({ name: 'ours' }, peers, { rounds: 3, measure, slowAfter: 2_000, now: () => time })
    expect(figures.peers.map((peer: { rounds: number[] }) => peer.rounds.length)).toEqual([1, 3])
    expect(rowOf({ name: 'n', unit: 'u', ...figures }).peers[0].ratio).toBe(1)
  })

  test('measure ours alone if there is no peer, and report that ours failed', async () => {
    const alone = await inRounds({ name: 'ours' }, [], { rounds: 3, measure: async () => 7 })
    expect(alone.rounds).toEqual([7, 7, 7])
    const failed = await inRounds({ name: 'ours' }, [{ name: 'a' }], { rounds: 1, measure: () => Promise.reject(new Error('bug')) })
    expect(rowOf({ name: 'n', unit: 'u', ...failed }).failed).toBe('bug')
  })

  test('of real locks give real figures: a replica in memory beside async-mutex, which is installed if it is missing', {
    timeout: 900_000,
  }, async () => {
    const { asyncMutex, inMemory } = await bench('embedded')
    const { lessorLock } = await bench('leasehold')
    const replica = await inMemory()
    try {
      const peer = await asyncMutex().then(
        (lock: object) => ({ name: 'async-mutex', ...lock }),
        (error: Error) => ({ name: 'async-mutex', failed: error.message }), // without a registry there is no peer
      )
      const measure = (lock: Lock) =>
        throughput(
          async (lane: number, i: number) => {
            const name = `lane/${lane}/${i % 4}`
            await lock.release(name, await lock.acquire(name))
          },
          { inFlight: 4, forSeconds: 0.02, warmUp: 0 },
        )
      const ours = lessorLock(replica)
      const row = rowOf({ name: 'pairs', unit: 'pairs/s', ...(await inRounds(ours, [peer], { rounds: 2, measure })) })
      expect(row.failed).toBeUndefined()
      expect(row.median).toBeGreaterThan(0)
      if (row.peers[0].failed === undefined) expect(row.peers[0].ratio).toBeGreaterThan(0)
      // Every pair was released: the state is as it was before.
      expect((await replica.read({ kind: 'summary' })).value.leases).toBe(0)
      expect(await microseconds(() => ours.acquire(`one/${Math.random()}`), { forSeconds: 0 })).toBeGreaterThan(0)
    } finally {
      await replica[Symbol.asyncDispose]()
    }
  })
})

interface Lock {
  acquire(name: string): Promise<unknown>
  release(name: string, held: unknown): Promise<unknown>
}

describe('the arguments', () => {
  const groups = { one: { parts: { a: 1, b: 2 } }, two: { parts: { c: 3 } } }

  test('without a name choose everything', () => {
    expect(parseArguments([], groups)).toMatchObject({
      chosen: [
        { group: 'one', parts: ['a', 'b'] },
        { group: 'two', parts: ['c'] },
      ],
      quick: false,
      writeDocs: false,
    })
  })

  test('choose groups and parts, each once and in the order of the table', () => {
    expect(parseArguments(['two', 'b', 'c', '--quick', '--json', 'f.json'], groups)).toMatchObject({
      chosen: [
        { group: 'one', parts: ['b'] },
        { group: 'two', parts: ['c'] },
      ],
      quick: true,
      json: 'f.json',
    })
  })

  test('--write-docs alone measures nothing', () => {
    expect(parseArguments(['--write-docs'], groups)).toMatchObject({ chosen: [], writeDocs: true })
  })

  test.each([[['three']], [['--slow']], [['--json']], [['--json', '']]])('%j is refused with a message', args => {
    expect(() => parseArguments(args, groups)).toThrow(/no benchmark three|Unknown option|argument missing|name of a file/)
  })

  test('the table has every group that the documents name, and no part has two meanings', async () => {
    const { groups: all } = await bench('groups')
    expect(Object.keys(all).sort()).toEqual(['embedded', 'faces', 'idle', 'latency', 'native', 'registry', 'scale', 'servers', 'stores'])
    const parts = Object.values(all as Record<string, { parts: object }>).flatMap(group => Object.keys(group.parts))
    expect(new Set(parts).size).toBe(parts.length)
    expect(parts.filter(part => part in all)).toEqual([])
    const files = readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    for (const page of files.filter(file => file.endsWith('.md')).map(file => join('docs', file)))
      for (const [, name] of readFileSync(join(root, page), 'utf8').matchAll(/npm run bench -- ([a-z][\w-]*)/g))
        expect([...Object.keys(all), ...parts], page).toContain(name)
  })
})

const results = (rows: object[], quick = false) => ({
  at: '2026-11-16T12:00:00.000Z',
  quick,
  machine: { cores: 2, processor: 'p', memory: '8.0 GiB', system: 'Linux 6', files: 'ext4 at /tmp', node: 'v20' },
  seconds: 1,
  rows,
})
const pairs = rowOf({
  name: 'pairs <&> "all"',
  unit: 'pairs/s',
  rounds: [40, 42],
  peers: [
    { name: 'Redis', about: 'Redis 7 | fsync', rounds: [20], want: atLeast(3) },
    { name: 'Consul', failed: 'not here' },
  ],
})
const bytes = rowOf({ name: 'bytes', unit: 'bytes', value: 500, want: atMost(450) })

describe('a chart', () => {
  const svg: string = chart('Group & more', [pairs, bytes, rowOf({ name: 'plain', unit: 'ms', value: 1 })])

  test('is well-formed: every tag is closed and every text is escaped', () => {
    const open: string[] = []
    for (const [, closing, name, , self] of svg.matchAll(/<(\/?)([a-z]+)((?:\s+[\w-]+="[^"<]*")*|[^>]*)(\/?)>/g)) {
      if (closing === '/') expect(open.pop()).toBe(name)
      else if (self !== '/') open.push(name!)
    }
    expect(open).toEqual([])
    expect(svg).toContain('pairs &lt;&amp;&gt; &quot;all&quot;')
    expect(svg).not.toMatch(/&(?!amp;|lt;|gt;|quot;)/)
  })

  test('has a bar for ours and for each peer that was measured, a limit where one is wanted, and colours for light and dark pages', () => {
    expect(svg.match(/class="ours"/g)).toHaveLength(2)
    expect(svg.match(/class="peer"/g)).toHaveLength(1)
    expect(svg.match(/class="limit"/g)).toHaveLength(1)
    expect(svg).toContain('not measured')
    expect(svg).toContain('prefers-color-scheme: dark')
    expect(svg).toMatch(/wanted ≥ 3 ×: not met/)
    const widths = [...svg.matchAll(/class="(?:ours|peer)" x="\d+" y="\d+" width="(\d+)"/g)].map(([, width]) => Number(width))
    expect(widths[0]! / widths[1]!).toBeCloseTo(41 / 20, 1)
  })
})

describe('results', () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-results-'))
  afterAll(() => rmSync(folder, { recursive: true }))

  test('of a part replace its results before; those of other parts stay; a quick run does not replace a full one', () => {
    expect(readResults('g', folder)).toBeUndefined()
    expect(writeResults('g', 'G', { a: results([pairs]), b: results([bytes], true) }, folder)).toEqual([])
    expect(writeResults('g', 'G', { a: results([], true), b: results([pairs], true) }, folder)).toEqual(['a'])
    const { parts } = readResults('g', folder)
    expect(parts.a.rows).toHaveLength(1)
    expect(parts.b.rows[0].name).toBe(pairs.name)
    writeResults('g', 'G', { a: results([]) }, folder)
    expect(readResults('g', folder).parts.a.rows).toEqual([])
  })

  test('are shown between the marks of a page, and nothing else of the page changes', () => {
    const group = { group: 'g', title: 'G', parts: { a: results([pairs, bytes]), b: results([bytes], true) } }
    const page = 'before\n<!-- npm run bench -- --write-docs writes from here -->\nold\n<!-- to here -->\nafter\n'
    const written: string = withBlock(page, numbersBlock([group]))
    expect(written.startsWith('before\n')).toBe(true)
    expect(written.endsWith('<!-- to here -->\nafter\n')).toBe(true)
    expect(written).not.toContain('old')
    expect(withBlock(written, numbersBlock([group]))).toBe(written)
    expect(written).toContain('| `a`: bytes | 500 bytes |  |  | ≤\u00a0450\u00a0bytes, not met |')
    expect(written).toContain('| `b --quick`: bytes | 500 bytes |  |  | ≤\u00a0450\u00a0bytes, not met |')
    expect(written).toMatch(/compared with Redis \|.* \| 2\.05\u00a0× \| ≥\u00a03\u00a0×, not met \|/)
    expect(written).toContain('compared with Consul | not measured: not here |')
    expect(() => withBlock('no marks', 'x')).toThrow(/lacks/)
  })

  test('docs/numbers.md has the marks', () => {
    expect(() => withBlock(readFileSync(join(root, 'docs/numbers.md'), 'utf8'), 'x')).not.toThrow()
  })
})
