/** The import directions of the source, and the rules that keep time and randomness out of it. */
import { readdirSync, readFileSync } from 'node:fs'
import { join, posix, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'

/**
 * Which room (a folder or a file of the source) may import which. A name that ends in `/` is a folder with everything below it, others are
 * single files. A room may always import itself. The prefix `type:` allows `import type` only. `'*'` is everything. The first room that contains a
 * file counts.
 */
const rooms: readonly Room[] = [
  { room: 'kernel/', may: [], packages: 'none' },
  { room: 'errors.ts', may: ['type:kernel/'] },
  // The sentences of refusals: every room that shows one makes it here.
  { room: 'wording.ts', may: ['type:kernel/', 'kernel/name.ts', 'kernel/reason.ts'] },
  // Errors that are made in one place, for every store and every wire.
  { room: 'unreachable-error.ts', may: ['errors.ts'] },
  { room: 'refused-error.ts', may: ['errors.ts', 'type:kernel/', 'wording.ts'] },
  { room: 'duration.ts', may: ['errors.ts'] },
  { room: 'options.ts', may: ['errors.ts'] },
  { room: 'abort.ts', may: [] },
  { room: 'clock.ts', may: ['abort.ts', 'errors.ts', 'duration.ts'] },
  { room: 'backoff.ts', may: ['type:clock.ts'] },
  { room: 'web-clock.ts', may: ['type:clock.ts'] },
  { room: 'at-exit.ts', may: [] },
  // Queues and maps of bounded cost.
  { room: 'fifo.ts', may: [] },
  { room: 'recent-map.ts', may: [] },

  // Which files are private enough to decide who may do what: the same for stores, fences and secrets.
  { room: 'private-file.ts', may: ['errors.ts', 'type:clock.ts'] },

  { room: 'store.ts', may: ['kernel/', 'errors.ts'] },
  {
    room: 'store/',
    may: [
      'store.ts',
      'private-file.ts',
      'kernel/',
      'errors.ts',
      'unreachable-error.ts',
      'duration.ts',
      'clock.ts',
      'backoff.ts',
      'at-exit.ts',
    ],
    packages: 'drivers too',
  },

  {
    room: 'lessor.ts',
    may: [
      'type:lessor/key-view.ts',
      'type:lessor/list-part.ts',
      'lessor/read-options.ts',
      'type:lessor/sketch-view.ts',
      'type:kernel/',
      'type:store.ts',
      'type:errors.ts',
    ],
  },
  // Which policy is in force for a name is a rule: readers of policies ask it, and do not decide it again.
  { room: 'lessor/', may: ['type:kernel/', 'kernel/copy.ts', 'kernel/rule/policy.ts', 'type:lessor.ts', 'abort.ts'] },
  {
    room: 'replica/',
    may: [
      'kernel/',
      'store.ts',
      'lessor.ts',
      'lessor/',
      'errors.ts',
      'refused-error.ts',
      'duration.ts',
      'clock.ts',
      'backoff.ts',
      'fifo.ts',
    ],
  },

  // Terms from past durations: data and pure functions.
  { room: 'learn/', may: ['kernel/state/durations.ts', 'type:lessor.ts', 'errors.ts', 'duration.ts'] },

  {
    room: 'holder/',
    may: [
      ...['type:kernel/', 'kernel/command.ts', 'kernel/copy.ts', 'kernel/event.ts', 'kernel/loss-cause.ts'],
      ...['type:store.ts', 'lessor.ts', 'lessor/', 'lease.ts'],
      ...['learn/', 'options.ts', 'errors.ts', 'refused-error.ts', 'duration.ts', 'clock.ts', 'backoff.ts'],
    ],
  },
  { room: 'lease.ts', may: ['type:holder/held-lease.ts', 'options.ts', 'errors.ts'] },
  { room: 'leases.ts', may: ['holder/', 'recipe/'] },
  // Registrations, and which instance is picked: data and pure functions, so that the server lists, feeds and answers by the same rules as the
  // library. Names are checked by the kernel's own rule.
  { room: 'registry/', may: ['type:kernel/', 'kernel/name.ts', 'type:lessor.ts', 'duration.ts', 'errors.ts', 'wording.ts'] },
  // Conditions as text, explanations and forecasts for waiters of a pool: data and pure functions, the same for the library, the server and the command line.
  {
    room: 'pool/',
    may: [
      ...[
        'type:kernel/',
        'kernel/command.ts',
        'kernel/rule/pool/backfill.ts',
        'kernel/rule/pool/condition.ts',
        'kernel/state/durations.ts',
      ],
      ...['learn/', 'type:lessor.ts', 'errors.ts', 'duration.ts'],
    ],
  },
  // Processes share a guard in a file, so it uses the lock of the file store.
  {
    room: 'recipe/fence/',
    may: [
      'options.ts',
      'private-file.ts',
      'store/file/engine.ts',
      'store/file/file-lock.ts',
      'store/file/errors.ts',
      'errors.ts',
      'clock.ts',
      'backoff.ts',
    ],
  },
  {
    room: 'recipe/',
    may: [
      ...[
        'type:kernel/',
        'kernel/command.ts',
        'registry/',
        'pool/',
        'lessor.ts',
        'lessor/propose.ts',
        'lease.ts',
        'options.ts',
        'errors.ts',
        'wording.ts',
        'refused-error.ts',
        'duration.ts',
        'clock.ts',
        'backoff.ts',
      ],
      ...['type:holder/lease-client.ts', 'holder/acquire-options.ts', 'holder/validity.ts', 'holder/learned-terms.ts'],
      ...['kernel/rule/pool/condition.ts', 'learn/expectation.ts'],
    ],
  },

  // The devices of a host: found by programs that are not trusted, offered as members of a pool, reported and reclaimed.
  {
    room: 'devices/',
    may: [
      'type:kernel/',
      'kernel/command.ts',
      'type:holder/lease-client.ts',
      'type:lessor.ts',
      'type:lease.ts',
      'lessor/propose.ts',
      'refused-error.ts',
      'options.ts',
      'errors.ts',
      'duration.ts',
      'clock.ts',
      'backoff.ts',
    ],
  },

  // Agents: claims that a forgetful holder can use. It knows no protocol; MCP, hooks and the guard are built on it.
  {
    room: 'agent/',
    may: [
      ...['type:kernel/', 'kernel/command.ts', 'kernel/name.ts', 'kernel/outcome.ts', 'type:lessor.ts', 'type:leases.ts', 'type:recipe/'],
      ...['holder/operations.ts', 'type:holder/', 'options.ts', 'errors.ts', 'wording.ts', 'duration.ts', 'clock.ts', 'backoff.ts'],
    ],
  },

  {
    room: 'wire/',
    may: [
      ...[
        'web-clock.ts',
        'registry/',
        'kernel/',
        'lessor.ts',
        'lessor/list-part.ts',
        'lessor/propose.ts',
        'errors.ts',
        'wording.ts',
        'unreachable-error.ts',
        'refused-error.ts',
      ],
      ...['duration.ts', 'clock.ts', 'backoff.ts'],
    ],
  },
  // Other people's protocols: translations onto a Lessor. They see neither the replica nor the server.
  {
    room: 'face/',
    may: [
      'registry/',
      'type:kernel/',
      'kernel/name.ts',
      'kernel/outcome.ts',
      'type:lessor.ts',
      'lessor/propose.ts',
      'errors.ts',
      'wording.ts',
      'refused-error.ts',
      'type:clock.ts',
    ],
  },
  {
    room: 'server/',
    may: [
      ...['dashboard/', 'registry/', 'face/face.ts', 'devices/report.ts', 'pool/', 'kernel/', 'lessor.ts', 'lessor/', 'wire/'],
      ...['learn/expectation.ts', 'errors.ts', 'wording.ts', 'refused-error.ts', 'duration.ts', 'clock.ts', 'backoff.ts'],
      ...['fifo.ts', 'recent-map.ts'],
    ],
  },
  // MCP: the tools of agents, over stdio and as a route of the server.
  {
    room: 'mcp/',
    may: ['agent/', 'server/', 'leases.ts', 'errors.ts', 'duration.ts', 'clock.ts', 'backoff.ts'],
    packages: 'drivers too',
  },
  // The guard: events of coding agents, as a route of the server. `leasehold guard` loads the first of these files for every edit, and nothing else.
  ...['patch-paths', 'hook-event', 'hook-answer', 'hook-agent', 'host-process', 'token-file'].map(file => ({
    room: `guard/${file}.ts`,
    may: ['guard/patch-paths.ts', 'type:guard/'],
  })),
  {
    room: 'guard/',
    may: [
      'agent/',
      'server/',
      'leases.ts',
      'lessor.ts',
      'lessor/propose.ts',
      'kernel/name.ts',
      'errors.ts',
      'wording.ts',
      'duration.ts',
      'clock.ts',
      'backoff.ts',
    ],
  },
  { room: 'dashboard/', may: ['wire/http/client.ts', 'wire/http/action-verb.ts', 'type:wire/http/', 'type:lessor.ts'] },

  // The demonstration: programs as users write them, on a lessor that can be taken away from each.
  { room: 'demo/', may: ['agent/', 'devices/', 'lessor/', 'leases.ts', 'lessor.ts', 'errors.ts', 'clock.ts', 'backoff.ts'] },

  // The simulator runs servers, too. The published test tools must not pull in a server.
  { room: '../sim/', may: ['*'], never: ['cli/', 'dashboard/'] },
  // The playground runs the package in a browser: no server, no engine, and of the command line only the sentences.
  { room: '../playground/browser/', may: [] },
  {
    room: '../playground/',
    may: [
      ...[
        'kernel/',
        'store.ts',
        'store/memory.ts',
        'replica/',
        'lease.ts',
        'leases.ts',
        'errors.ts',
        'wording.ts',
        'duration.ts',
        'clock.ts',
      ],
      ...[
        'cli/resource-sentences.ts',
        '../sim/world.ts',
        '../sim/beliefs.ts',
        '../sim/believed.ts',
        '../sim/covers.ts',
        '../playground/browser/',
      ],
    ],
  },
  { room: 'testing/', may: ['*'], never: ['server/', 'cli/', 'dashboard/'], packages: 'drivers too' },
  { room: 'otel.ts', may: ['type:holder/'] },
  { room: 'metrics.ts', may: ['type:holder/', 'errors.ts', 'clock.ts'] },
  {
    room: 'connect/relocating-lessor.ts',
    may: [
      'type:kernel/',
      'kernel/copy.ts',
      'type:store.ts',
      'lessor.ts',
      'lessor/',
      'errors.ts',
      'clock.ts',
      'backoff.ts',
      'connect/next-lessor.ts',
    ],
  },
  {
    room: 'connect/heartbeat-thread.ts',
    may: ['holder/', 'leases.ts', 'errors.ts', 'duration.ts', 'clock.ts', 'backoff.ts', 'at-exit.ts', 'connect/heartbeat-worker.ts'],
  },
  { room: 'connect/', may: ['*'] },
  { room: 'index.ts', may: ['*'] },
  { room: 'demo.ts', may: ['*'] },
  { room: 'cli/', may: ['*'] },
]

/** Only the store of an engine may import its driver. */
const drivers = ['redis', 'ioredis', 'pg', 'postgres', '@photostructure/sqlite', 'node:sqlite']

/** Only clock.ts reads time, sets timers and draws random numbers. Every exception gives its reason here. */
const timekeepers: readonly { readonly room: string; readonly reason: string }[] = [
  { room: 'clock.ts', reason: 'it is the place for it' },
  { room: 'web-clock.ts', reason: 'it replaces clock.ts in a browser, where clock.ts cannot be loaded' },
  { room: 'dashboard/', reason: 'it runs in a browser, displays data and decides nothing' },
  { room: '../playground/browser/', reason: 'it stands for the timers and clocks of Node in a browser' },
]

const timeOrChance: readonly Ban[] = [
  { pattern: /\bDate\s*\.\s*now\b|\bnew\s+Date\b|\bDate\s*\(|=\s*Date\b/, what: 'reads the wall clock' },
  { pattern: /\bperformance\s*\.\s*(now|timeOrigin)\b|=\s*performance\b/, what: 'reads the monotonic clock' },
  { pattern: /\bhrtime\b/, what: 'reads the monotonic clock' },
  { pattern: /\b(os|process)\s*\.\s*uptime\b|\bimport\b[^'"]*\buptime\b[^'"]*\bfrom\b/, what: 'reads the uptime' },
  { pattern: /(?<!\bclock\.)\b(set(Timeout|Interval|Immediate))\b/, what: 'sets a timer' },
  { pattern: /\bAbortSignal\s*\.\s*timeout\b/, what: 'sets a timer' },
  { pattern: /\bMath\s*\.\s*random\b/, what: 'draws a random number' },
  { pattern: /\b(random(Bytes|UUID|Int|Fill(Sync)?)|getRandomValues)\b/, what: 'draws a random number' },
]

/** Two replicas, on two versions of Node, must compute the same bytes. */
const notInKernel: readonly Ban[] = [
  { pattern: /\bMath\s*\.\s*(?!(max|min|floor|ceil|trunc|abs|sign|imul|clz32)\b)\w+/, what: 'a floating-point function' },
  { pattern: /\b(async|await)\b/, what: 'a rule must not wait: the state could change in between' },
  { pattern: /\b(localeCompare|Intl)\b|\.toLocale\w*/, what: 'depends on the locale' },
  { pattern: /\.\s*(normalize|toLowerCase|toUpperCase)\s*\(/, what: 'depends on the Unicode tables of this Node' },
  // Reading JSON is the same everywhere; what is written depends on the order of fields.
  { pattern: /\bJSON\b(?!\.parse\()/, what: 'JSON is not a canonical encoding' },
  { pattern: /\b(WeakRef|FinalizationRegistry)\b/, what: 'depends on the garbage collector' },
  { pattern: /\b(process|globalThis)\s*\./, what: 'depends on the environment' },
]

describe('the source', () => {
  test('follows the import rules, reads time and random numbers only in clock.ts, and keeps the kernel pure', () => {
    expect(violations(sources())).toEqual([])
  })
})

describe('imports', () => {
  test('form no circle between files, types included', () => {
    expect(circles(sources())).toEqual([])
  })

  test('that form a circle are found, types and lazy imports included', () => {
    const files = new Map([
      ['a.ts', `import { b } from './b/b.ts'`],
      ['b/b.ts', `import type { C } from '../c.ts'`],
      ['c.ts', `const a = () => import('./a.ts')\nexport { d } from './d.ts'`],
      ['d.ts', `import { e } from './e.ts'\nimport 'node:fs'`],
      ['e.ts', ''],
    ])
    expect(circles(files)).toEqual(['a.ts b/b.ts c.ts'])
  })
})

describe('the checker judges', () => {
  const cases: readonly (readonly [what: string, path: string, source: string, complaint: RegExp | undefined])[] = [
    ['a kernel that imports a store', 'kernel/apply.ts', `import { Store } from '../store.ts'`, /kernel\/ may not import store\.ts/],
    [
      'a kernel that imports a type from outside',
      'kernel/apply.ts',
      `import type { Store } from '../store.ts'`,
      /may not import store\.ts/,
    ],
    ['a kernel that imports from Node', 'kernel/hash.ts', `import { createHash } from 'node:crypto'`, /may not import node:crypto/],
    ['a kernel that imports itself', 'kernel/apply.ts', `import { State } from './state.ts'`, undefined],
    ['a re-export', 'lessor.ts', `export { Replica } from './replica/replica.ts'`, /lessor\.ts may not import replica\/replica\.ts/],
    ['a lazy import', 'recipe/lock.ts', `const x = () => import('../replica/replica.ts')`, /may not import replica/],
    ['an import over several lines', 'replica/a.ts', `import {\n  a,\n  b,\n} from '../store/file.ts'`, /may not import store\/file\.ts/],
    ['an import for its side effect', 'wire/a.ts', `import '../server/serve.ts'`, /may not import server/],
    [
      'a worker started by its address',
      'replica/a.ts',
      `new Worker(new URL('../store/worker.ts', import.meta.url))`,
      /may not import store/,
    ],
    ['a recipe that uses the kernel', 'recipe/lock.ts', `import { apply } from '../kernel/apply.ts'`, /only as a type/],
    ['a recipe that imports a type of the kernel', 'recipe/lock.ts', `import type { Command } from '../kernel/command.ts'`, undefined],
    ['a recipe that imports a store', 'recipe/lock.ts', `import { File } from '../store/file.ts'`, /may not import store/],
    [
      'a dashboard that imports the kernel',
      'dashboard/page.tsx',
      `import type { State } from '../kernel/state.ts'`,
      /may not import kernel/,
    ],
    ['testing that imports the server', 'testing/a.ts', `import { serve } from '../server/serve.ts'`, /may not import server/],
    ['testing that imports a store', 'testing/a.ts', `import { Memory } from '../store/memory.ts'`, undefined],
    ['a driver above the store', 'replica/a.ts', `import { createClient } from 'redis'`, /drivers belong to store\//],
    ['a driver in its store', 'store/redis.ts', `const { createClient } = await import('redis')`, undefined],
    ['a folder without a rule', 'helpers/a.ts', '', /no import rule/],
    ['a file without a rule', 'utils.ts', '', /no import rule/],
    ['an import written inside a comment', 'kernel/a.ts', `// import { Store } from '../store.ts'`, undefined],
    ['an import written inside a string', 'kernel/a.ts', 'const usage = `import { connect } from "../connect.ts"`', undefined],

    ...[
      ...[
        'Date.now()',
        'new Date()',
        'performance.now()',
        'performance.timeOrigin',
        'process.hrtime.bigint()',
        'os.uptime()',
        'process.uptime()',
      ],
      ...['Math.random()', 'crypto.randomUUID()', 'randomBytes(8)', 'crypto.getRandomValues(bytes)', 'randomInt(5)'],
      ...['setTimeout(f, 1)', 'setInterval(f, 1)', 'setImmediate(f)', 'globalThis.setTimeout(f)', 'AbortSignal.timeout(5)'],
      // biome-ignore lint/suspicious/noTemplateCurlyInString: it is the source of a template
      ...['const { now } = Date', 'const { now } = performance', '`${Date.now()}`'],
    ].map(source => [source, 'store/sqlite-worker.ts', source, /outside clock\.ts/] as const),
    ['timers by import', 'replica/a.ts', `import { scheduler } from 'node:timers/promises'`, /outside clock\.ts/],
    ['uptime by import', 'replica/a.ts', `import { hostname, uptime } from 'node:os'`, /outside clock\.ts/],
    ['time in the simulator', '../sim/main.ts', 'const began = performance.now()', /outside clock\.ts/],
    ['time in clock.ts', 'clock.ts', 'export const now = () => performance.now()', undefined],
    ['time in a comment', 'replica/a.ts', '/* unlike Date.now() */ // nor performance.now()', undefined],
    ['time in a message', 'replica/a.ts', `throw new Error("do not call Date.now() or it's over")`, undefined],
    ['time after a regular expression with quotes', 'replica/a.ts', `const quoted = /['"\`/]/.test(s)\nDate.now()`, /outside clock\.ts/],
    ['time after a division', 'replica/a.ts', 'const half = (a + b) / 2\nDate.now() / 2', /outside clock\.ts/],
    ['an injected clock', 'replica/a.ts', 'this.clock.setTimeout(f, 5); clock.uptime()', undefined],

    ...['Math.pow(2, 3)', 'Math.sqrt(2)', 'Math.log(2)', 'Math.sin(1)', 'Math.exp(1)', 'Math.round(x)', 'Math.PI'].map(
      source => [source, 'kernel/a.ts', source, /floating-point/] as const,
    ),
    ['integer functions', 'kernel/a.ts', 'Math.max(Math.min(a, b), Math.floor(c), Math.trunc(d), Math.imul(e, f))', undefined],
    ['await', 'kernel/a.ts', 'await store.append(record)', /wait/],
    ['async', 'kernel/a.ts', 'export async function apply() {}', /wait/],
    ['the locale', 'kernel/a.ts', 'names.sort((a, b) => a.localeCompare(b))', /locale/],
    ['the Unicode tables', 'kernel/a.ts', 'name.normalize()', /Unicode/],
    ['JSON', 'kernel/a.ts', 'JSON.stringify(state)', /JSON/],
    ['the environment', 'kernel/a.ts', 'process.env.DEBUG', /environment/],
    ['JSON elsewhere', 'wire/http.ts', 'JSON.stringify(await answer)', undefined],
  ]

  test.each(cases)('%s', (_, path, source, complaint) => {
    const found = violations(new Map([[path, source]])).join('\n')
    if (complaint) expect(found).toMatch(complaint)
    else expect(found).toBe('')
  })

  test('a violation with its line', () => {
    expect(violations(new Map([['kernel/a.ts', '/* two\nlines */\nlet x = `\n`\nJSON.stringify(x)']]))).toEqual([
      expect.stringMatching(/^src\/kernel\/a\.ts:5 /),
    ])
  })
})

// ---------------------------------------------------------------------------------------------------------------------------

interface Room {
  readonly room: string
  readonly may: readonly string[]
  readonly never?: readonly string[]
  /** What it may import from npm and Node: nothing, everything but drivers (the default), or drivers too. */
  readonly packages?: 'none' | 'drivers too'
}

interface Ban {
  readonly pattern: RegExp
  readonly what: string
}

interface Import {
  readonly specifier: string
  readonly typeOnly: boolean
  readonly index: number
}

/** One sentence for each place where a file breaks a rule. `files` has sources by their path below src/. */
function violations(files: ReadonlyMap<string, string>): string[] {
  const found: string[] = []
  for (const [path, source] of files) {
    const { code, withStrings } = blank(source)
    const complain = (index: number, sentence: string) => found.push(`src/${path}:${source.slice(0, index).split('\n').length} ${sentence}`)
    const home = rooms.find(({ room }) => isIn(path, room))
    if (!home) {
      complain(0, 'no import rule covers this file: add one in test/project/architecture.test.ts')
      continue
    }
    const imports = importsOf(code, withStrings)
    for (const found of imports) {
      const complaint = judgeImport(home, path, found)
      if (complaint) complain(found.index, complaint)
    }
    if (!timekeepers.some(({ room }) => isIn(path, room))) {
      for (const { index, what } of matches(code, timeOrChance)) complain(index, `${what} outside clock.ts`)
      for (const { index, specifier } of imports) if (/^(node:)?timers\b/.test(specifier)) complain(index, 'sets a timer outside clock.ts')
    }
    if (home.room === 'kernel/') for (const { index, text, what } of matches(code, notInKernel)) complain(index, `${text}: ${what}`)
  }
  return found
}

function judgeImport(home: Room, path: string, { specifier, typeOnly }: Import): string | undefined {
  if (!specifier.startsWith('.')) {
    if (home.packages === 'none') return `${home.room} may not import ${specifier}, nor anything else from outside itself`
    if (drivers.includes(specifier) && home.packages !== 'drivers too') return `imports ${specifier}, but drivers belong to store/`
    return undefined
  }
  const target = posix.join(posix.dirname(path), specifier).replace(/^\.\.\/src\//, '')
  if (isIn(target, home.room)) return undefined
  const refusal = `${home.room} may not import ${target}`
  if (home.never?.some(room => isIn(target, room))) return refusal
  if (home.may.some(room => room === '*' || isIn(target, room))) return undefined
  if (!home.may.some(room => room.startsWith('type:') && isIn(target, room.slice(5)))) return refusal
  return typeOnly ? undefined : `${home.room} may import ${target} only as a type`
}

/** Groups of files that import each other in a circle, each sorted and joined by spaces. */
function circles(files: ReadonlyMap<string, string>): string[] {
  const targets = new Map(
    [...files].map(([path, source]) => {
      const { code, withStrings } = blank(source)
      const relatives = importsOf(code, withStrings).filter(({ specifier }) => specifier.startsWith('.'))
      return [path, relatives.map(({ specifier }) => posix.join(posix.dirname(path), specifier).replace(/^\.\.\/src\//, ''))]
    }),
  )
  const reach = (from: string) => {
    const seen = new Set<string>()
    const next = [...(targets.get(from) ?? [])]
    for (let path = next.pop(); path !== undefined; path = next.pop()) {
      if (seen.has(path)) continue
      seen.add(path)
      next.push(...(targets.get(path) ?? []))
    }
    return seen
  }
  const reached = new Map([...files.keys()].map(path => [path, reach(path)]))
  const found = new Set<string>()
  for (const [path, seen] of reached)
    if (seen.has(path))
      found.add(
        [...seen]
          .filter(other => reached.get(other)?.has(path))
          .sort()
          .join(' '),
      )
  return [...found].sort()
}

function isIn(path: string, room: string): boolean {
  return room.endsWith('/') ? path.startsWith(room) : path === room
}

function* matches(code: string, bans: readonly Ban[]): Generator<{ index: number; text: string; what: string }> {
  for (const { pattern, what } of bans) {
    for (const match of code.matchAll(new RegExp(pattern, 'g'))) yield { index: match.index, text: match[0], what }
  }
}

/** Imports and re-exports, dynamic imports, and workers started by `new URL('./file', …)`. */
function importsOf(code: string, withStrings: string): Import[] {
  const forms = [
    /\b(?:import|export)\b(?<type>\s+type\b)?[^'"`;=]*?\bfrom\s*['"](?<specifier>[^'"]+)['"]/g,
    /\bimport\s*\(?\s*['"](?<specifier>[^'"]+)['"]/g,
    /\bnew\s+URL\s*\(\s*['"](?<specifier>\.[^'"]+)['"]/g,
  ]
  return forms.flatMap(form =>
    [...withStrings.matchAll(form)]
      .filter(match => code.startsWith(match[0].slice(0, 3), match.index)) // otherwise it is inside a string
      .map(match => ({ specifier: match.groups!.specifier!, typeOnly: match.groups!.type !== undefined, index: match.index })),
  )
}

/**
 * The source with comments blanked out (`withStrings`), and with strings and regular expressions blanked out too (`code`). Every character
 * keeps its position. The content of a template's `${}` is code.
 */
function blank(source: string): { code: string; withStrings: string } {
  const code = source.split('')
  const withStrings = source.split('')
  const erase = (from: number, to: number, ...texts: string[][]) => {
    for (let i = from; i < to; i++) if (source[i] !== '\n') for (const text of texts) text[i] = ' '
  }
  const endOf = (pattern: RegExp, from: number) => {
    pattern.lastIndex = from
    return pattern.test(source) ? pattern.lastIndex : source.length
  }
  const templates: number[] = [] // the number of open braces in each enclosing `${`
  let last = '' // the previous token: distinguishes a regular expression from a division
  let i = 0
  const templateText = (from: number) => {
    const end = endOf(/(?:\\[\s\S]|\$(?!\{)|[^\\`$])*(?:`|\$\{)/y, from)
    erase(from, end, code)
    if (source[end - 1] === '{') templates.push(0)
    return end
  }
  while (i < source.length) {
    const char = source[i]!
    if (source.startsWith('//', i)) {
      const end = endOf(/[^\n]*/y, i)
      erase(i, end, code, withStrings)
      i = end
    } else if (source.startsWith('/*', i)) {
      const end = endOf(/[\s\S]*?\*\//y, i)
      erase(i, end, code, withStrings)
      i = end
    } else if (char === "'" || char === '"') {
      const end = endOf(char === "'" ? /'(?:\\[\s\S]|[^\\'\n])*'?/y : /"(?:\\[\s\S]|[^\\"\n])*"?/y, i)
      erase(i + 1, end - 1, code)
      i = end
      last = 'string'
    } else if (char === '`') {
      i = templateText(i + 1)
      last = source[i - 1] === '{' ? '{' : 'string'
    } else if (char === '/' && /^(?:|[^\w)\]}]|return|case|typeof|in|of|yield|await)$/.test(last)) {
      const end = endOf(/\/(?:\\.|\[(?:\\.|[^\\\]\n])*\]|[^\\/[\n])+\/\w*/y, i)
      erase(i + 1, end - 1, code)
      i = end
      last = 'string'
    } else if (char === '}' && templates.at(-1) === 0) {
      templates.pop()
      i = templateText(i + 1)
      last = source[i - 1] === '{' ? '{' : 'string'
    } else {
      if (templates.length > 0 && char === '{') templates[templates.length - 1]!++
      if (templates.length > 0 && char === '}') templates[templates.length - 1]!--
      const end = /\w/.test(char) ? endOf(/\w+/y, i) : i + 1
      if (!/\s/.test(char)) last = source.slice(i, end)
      i = end
    }
  }
  return { code: code.join(''), withStrings: withStrings.join('') }
}

/** By their path from `src/`; paths of the simulator and the playground begin with `../`. */
function sources(): Map<string, string> {
  const src = fileURLToPath(new URL('../../src', import.meta.url))
  const files = [src, join(src, '../sim'), join(src, '../playground')].flatMap(folder =>
    readdirSync(folder, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile() && /\.tsx?$/.test(entry.name)),
  )
  return new Map(
    files.map(({ parentPath, name }) => {
      const file = join(parentPath, name)
      return [relative(src, file), readFileSync(file, 'utf8')]
    }),
  )
}
